"""From the engine's tensors to the manager's: block tables, and tokens that the host has not seen yet."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("transformers", reason="needs the extra: pip install 'kvcanary[transformers]'")

from kvcanary import CanaryBatch
from kvcanary.integrations.transformers.batches import BatchReader
from kvcanary.integrations.transformers.history import TokenHistory
from tests.integration.engines import SteppedEngine, make_model, newer
from tests.integration.test_faults import OTHER, PROMPT
from tests.integration.watched import WatchedEngine


def through_block_tables(engine: WatchedEngine) -> list[int]:
    """Decodes as kernels with block tables do, as far as the canary can see: it gets a table and stale indices.

    Answers a list to which the number of requests of each such batch is added.
    """
    runner, outputs = engine.processor.model_runner, engine.processor.inputs_and_outputs
    canary_and_model, kept, seen = runner.compute_batch, {}, []
    model_alone = canary_and_model.__wrapped__

    def with_indices(model: Any, data: dict[str, Any]) -> None:
        model_alone(model, {**data, **kept})

    def with_table(model: Any, data: dict[str, Any]) -> None:
        requests = outputs.requests_in_batch
        kept.clear()
        if all(request.query_length == 1 for request in requests):
            table = torch.full([1, len(requests), 16], -1, dtype=torch.int32)
            for row, request in enumerate(requests):
                past = request.state.position_offset - 1
                engine.cache.fill_block_table(request.state.request_id, past, 1, table[:, row])
            kept.update({name: data[name] for name in ("block_table", "read_index", "write_index")})
            stale = [torch.zeros([0], dtype=torch.int64)]
            data = {**data, "block_table": table, "read_index": stale, "write_index": stale}
            seen.append(len(requests))
        canary_and_model(model, data)

    # The canary's wrapper calls the method that it found; let that be the one which has the indices.
    runner.compute_batch = model_alone
    del runner.compute_batch
    runner.compute_batch = with_indices
    attachment = engine.processor._kvcanary_attachment
    attachment._wrap(runner, "compute_batch", attachment._compute)
    canary_and_model = runner.compute_batch
    runner.compute_batch = with_table
    return seen


def test_block_tables_are_clean() -> None:
    engine = WatchedEngine("llama")
    seen = through_block_tables(engine)
    engine.add(PROMPT, 20, "one")
    engine.add(PROMPT[:9] + OTHER, 20, "two")
    engine.run()
    engine.close()
    assert not engine.found and len(seen) > 15 and max(seen) == 2
    plain = SteppedEngine(make_model("llama"), safety_margin=0.0)
    plain.add(PROMPT, 20, "one")
    plain.add(PROMPT[:9] + OTHER, 20, "two")
    plain.run()
    assert engine.outputs == plain.outputs


def test_block_tables_that_are_crossed() -> None:
    engine = WatchedEngine("llama")
    through_block_tables(engine)
    engine.add(PROMPT, 20, "one")
    engine.add(OTHER, 20, "two")
    engine.clean(3)
    one, two = engine.blocks("one"), engine.blocks("two")
    one[0], two[0] = two[0], one[0]
    found = engine.step_and_see()
    engine.close()
    names = {record.request_id for record in found if "VERIFY_TOKEN_MISMATCH" in record.reasons}
    assert names == {"one", "two"}


class State:
    def __init__(self, name: str, prompt: list[int], generated: list[int], offset: int) -> None:
        self.request_id, self.position_offset = name, offset
        self.initial_tokens, self.generated_tokens = prompt, generated


class Request:
    def __init__(self, state: State, query_length: int) -> None:
        self.state, self.query_length = state, query_length


@pytest.fixture
def engine() -> Any:
    found = WatchedEngine("llama")
    found.add(PROMPT, 9, "one")
    found.clean(2)
    yield found
    found.close()


def read(engine: WatchedEngine, state: State, input_ids: list[int]) -> CanaryBatch:
    layout = engine.processor._kvcanary_attachment._layout
    raw = torch.tensor(layout.pools[0].allocator.get_write_indices("one", state.position_offset - 1, 1))
    index = torch.tensor(layout.pools[0].allocator.get_read_indices("one", state.position_offset - 1, 1))
    lengths = torch.tensor([0, state.position_offset], dtype=torch.int32)
    data = {
        "input_ids": torch.tensor([input_ids], dtype=torch.int32),
        "position_ids": torch.tensor([[state.position_offset - 1]], dtype=torch.int32),
        "block_table": None,
        "write_index": [raw],
        "read_index": [index],
        "cu_seq_lens_k": {"full_attention": lengths} if newer() else lengths,
    }
    reader = BatchReader(layout, TokenHistory(4, 16, torch.device("cpu")), torch.device("cpu"))
    return reader.read(data, [Request(state, 1)])


def test_a_token_that_the_host_has_not_seen_is_taken_as_it_is(engine: WatchedEngine) -> None:
    generated = engine.active["one"].generated_tokens
    unseen = State("one", PROMPT, generated[:1], len(PROMPT) + 2)
    batch = read(engine, unseen, [77])
    assert batch.expected is not None and batch.expected.tokens.tolist() == [77]
    assert batch.history_lens is not None and batch.history_lens.tolist() == [len(PROMPT) + 1]
    seen = State("one", PROMPT, generated[:2], len(PROMPT) + 2)
    batch = read(engine, seen, [77])
    assert batch.expected is not None and batch.expected.tokens.tolist() == [generated[1]]


def test_a_history_makes_room_and_grows() -> None:
    history = TokenHistory(2, 4, torch.device("cpu"))
    one, two, three = (State(name, [10 * n, 10 * n + 1], [], 0) for n, name in enumerate(("one", "two", "three"), 1))
    assert history.rows_of([one, two]) == [2, 1]
    one.generated_tokens += [12]
    assert history.rows_of([one]) == [2] and history.tokens[2].tolist() == [10, 11, 12, -1]
    # The one that was not seen for longest goes.
    assert history.rows_of([three, one]) == [1, 2]
    assert history.tokens[1, :2].tolist() == [30, 31]
    one.generated_tokens += list(range(20))
    assert history.rows_of([one]) == [2] and history.width == 23
    assert history.tokens[2].tolist() == [10, 11, 12, *range(20)]
    # A name that comes again with another request begins anew.
    again = State("one", [5], [], 0)
    assert history.rows_of([again, three]) == [2, 1]
    assert history.tokens[2, 0] == 5 and history.tokens[1, :2].tolist() == [30, 31]
