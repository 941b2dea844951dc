# Written by kvcanary-gen from the spec; edit that instead.
"""Calls that tell of slots: excused, dropped, copied, brought to the host and back."""

from __future__ import annotations

from .manager_core import ManagerCore
from .transfers import ExportedSlots, Slots, copy_records, export_records, import_records, slots_on


class SlotCalls(ManagerCore):
    """What an engine calls where slots change hands outside a forward.

    `slots` are a tensor of any device or a list of ints, and slots of the pool named, the first one if none is; those
    outside the pool are left out. A slot may be given several times where it is only read.
    """

    def excuse_slots(self, slots: Slots, *, pool: str = "") -> None:
        """Slots that are not to be verified until the step ends, such as those that another request of it writes.

        A slot that a forward of the step has written counts again in the forwards behind it.
        """
        with self._entered("excuse_slots") as active:
            if active:
                self._excluded(self._pool(pool)).excuse(slots_on(self.device, "slots", slots))

    def drop_slots(self, slots: Slots | None = None, *, pool: str = "") -> None:
        """Slots whose fingerprints say nothing any more, all if None: they are not verified until they are written.

        For slots that were filled in another way than by a forward: a cache that was there before the canary, KV that
        came over the network without its fingerprints, bytes that another pool lies over. Not for slots that are merely
        freed: freed slots that somebody still reads are what the canary is there for.
        """
        with self._entered("drop_slots") as active:
            if active:
                given = None if slots is None else slots_on(self.device, "slots", slots)
                self._excluded(self._pool(pool)).drop(given)

    def copy_slots(self, source: Slots, target: Slots, *, pool: str = "", target_pool: str | None = None) -> None:
        """Fingerprints go where the engine has copied their slots, as in a fork.

        Args:
            source: slots that were copied.
            target: where each of them went, none twice.
            pool: the pool of the source.
            target_pool: the pool of the target, if it is another one.
        """
        with self._entered("copy_slots") as active:
            if not active:
                return
            here = self._pool(pool)
            there = here if target_pool is None else self._pool(target_pool)
            slots, to = slots_on(self.device, "source", source), slots_on(self.device, "target", target)
            copy_records(self.groups[here], self.groups[there], slots, to)
            source_exclusions, exclusions = self._exclusions[here], self._exclusions[there]
            if exclusions is not None and source_exclusions is not None:
                exclusions.restore(to, source_exclusions.dropped(slots))

    def export_slots(self, slots: Slots, *, pool: str = "") -> ExportedSlots:
        """Fingerprints on the host, for slots that are offloaded or sent away; the copy is not waited for."""
        with self._entered("export_slots") as active:
            place = self._pool(pool)
            given = slots_on(self.device, "slots", slots)
            exclusions = self._exclusions[place] if active else None
            return export_records(self.groups[place], given, None if exclusions is None else exclusions.dropped(given))

    def import_slots(self, slots: Slots, exported: ExportedSlots, *, pool: str = "") -> None:
        """Fingerprints come back with their slots, to these places, in the order of the export."""
        with self._entered("import_slots") as active:
            if active:
                place = self._pool(pool)
                given = slots_on(self.device, "slots", slots)
                dropped = import_records(self.groups[place], given, exported)
                exclusions = self._exclusions[place]
                if exclusions is not None:
                    exclusions.restore(given, dropped)
