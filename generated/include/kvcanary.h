/* Written by kvcanary-gen from the spec; edit that instead.
 *
 * A KV-cache canary for LLM servers, declared once and generated. Records, tags, bits and constants, for readers of device memory in C and C++. Spec 0.1.0.
 */
#ifndef KVCANARY_H
#define KVCANARY_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Constants */
#define KVCANARY_CANARY_CHAIN_ANCHOR UINT64_C(0xC0FFEE1234567890) /* Hashed once, it is the link that the first token of every chain carries. */
#define KVCANARY_REQ_POOL_IDX_PADDING INT64_C(0) /* Request row of a padded batch entry; row 0 of the token table belongs to nobody. */
#define KVCANARY_TOKEN_TO_KV_SLOT_PADDING INT64_C(0) /* The pool's dummy slot for padded tokens; never checked. */
#define KVCANARY_MAX_REAL_KV_SOURCES INT64_C(4) /* Real-KV sources that one launch hashes for a slot. */
#define KVCANARY_PARTIAL_REAL_KV_BYTES INT64_C(16) /* Bytes of each source that mode PARTIAL hashes. */
#define KVCANARY_MAX_PLAN_BATCH INT64_C(4096) /* Requests that one plan launch takes; the workspace holds one offset more. */
#define KVCANARY_INT32_MAX INT64_C(0x7FFFFFFF) /* Largest count that an int32 plan field can hold. */

/* The fingerprint beside one KV slot. A slot's stride may be larger than the record, in multiples of 8 bytes. */
typedef struct kvcanary_slot {
    int64_t token; /* Token id whose keys and values the slot holds. */
    int64_t position; /* Position of that token in its request. */
    uint64_t prev_hash; /* Link of the chain: the hash over the predecessor's record. */
    uint64_t real_kv_hash; /* Hash of the slot's real KV bytes, 0 where none are hashed. */
} kvcanary_slot;
#define KVCANARY_SLOT_BYTES 32

/* One row of the violation ring. */
typedef struct kvcanary_violation {
    int64_t kernel_kind; /* Launch tag of the endpoint that found it. */
    int64_t slot_idx; /* Slot that does not fit. */
    int64_t position; /* Stored position in verify; position being written in write. */
    int64_t stored_token; /* Token in the slot. */
    int64_t expected_token; /* Token that should be there, -1 where it is not known. */
    uint64_t stored_chain_hash; /* Link in the slot. */
    uint64_t expected_aux; /* Link that should be there in verify; expected position in write. */
    int64_t fail_reason_bits; /* Reasons as bits of FailReason. */
} kvcanary_violation;
#define KVCANARY_VIOLATION_BYTES 64

/* Where a request's chain stands before an entry; scratch of write. */
typedef struct kvcanary_write_chain {
    uint64_t prev_hash; /* The prev_hash that the entry will carry. */
    int64_t previous_position; /* Position of the entry stored before it, or of the seed. */
} kvcanary_write_chain;
#define KVCANARY_WRITE_CHAIN_BYTES 16

/* Why a row stands in the violation ring; several bits may be set. */
enum kvcanary_fail_reason {
    KVCANARY_FAIL_REASON_VERIFY_CHAIN_HASH_MISMATCH = 1 << 0, /* The stored link is not the hash of the predecessor's record. */
    KVCANARY_FAIL_REASON_VERIFY_POSITION_MISMATCH = 1 << 1, /* The stored position is not the planned one. */
    KVCANARY_FAIL_REASON_VERIFY_REAL_KV_HASH_MISMATCH = 1 << 2, /* The slot's real KV bytes are not those that were fingerprinted. */
    KVCANARY_FAIL_REASON_WRITE_TOKEN_MISMATCH = 1 << 3, /* A token being written is not the expected one. */
    KVCANARY_FAIL_REASON_WRITE_POSITION_MISMATCH = 1 << 4, /* A position being written is not the expected one, or does not follow its predecessor. */
    KVCANARY_FAIL_REASON_VERIFY_TOKEN_MISMATCH = 1 << 5, /* The stored token is not the one in the request's history. */
    KVCANARY_FAIL_REASON_VERIFY_SLOT_OUT_OF_RANGE = 1 << 6, /* A slot to verify lies outside the canary buffer. */
    KVCANARY_FAIL_REASON_WRITE_SLOT_OUT_OF_RANGE = 1 << 7, /* A slot to write lies outside the canary buffer. */
    KVCANARY_FAIL_REASON_WRITE_SLOT_COLLISION = 1 << 8 /* Two entries of one launch wrote one slot. */
};

/* How much of a slot's real KV bytes goes into its fingerprint. */
enum kvcanary_real_kv_hash_mode {
    KVCANARY_REAL_KV_HASH_MODE_NONE = 0, /* Nothing; the stored hash is 0. */
    KVCANARY_REAL_KV_HASH_MODE_PARTIAL = 1, /* The first 16 bytes of each source. */
    KVCANARY_REAL_KV_HASH_MODE_ALL = 2 /* Everything that each source declares. */
};

/* Names the endpoint of a launch; kernel_kind of a violation row. */
enum kvcanary_canary_launch_tag {
    KVCANARY_CANARY_LAUNCH_TAG_HEAD_K_FULL = 0,
    KVCANARY_CANARY_LAUNCH_TAG_HEAD_V_FULL = 1,
    KVCANARY_CANARY_LAUNCH_TAG_TAIL_K_FULL = 2,
    KVCANARY_CANARY_LAUNCH_TAG_TAIL_V_FULL = 3,
    KVCANARY_CANARY_LAUNCH_TAG_SWEEP_K_FULL = 4,
    KVCANARY_CANARY_LAUNCH_TAG_SWEEP_V_FULL = 5,
    KVCANARY_CANARY_LAUNCH_TAG_HEAD_K_SWA = 6,
    KVCANARY_CANARY_LAUNCH_TAG_HEAD_V_SWA = 7,
    KVCANARY_CANARY_LAUNCH_TAG_TAIL_K_SWA = 8,
    KVCANARY_CANARY_LAUNCH_TAG_TAIL_V_SWA = 9,
    KVCANARY_CANARY_LAUNCH_TAG_SWEEP_K_SWA = 10,
    KVCANARY_CANARY_LAUNCH_TAG_SWEEP_V_SWA = 11
};

#ifdef __cplusplus
}
#endif

#endif /* KVCANARY_H */
