"""Assigns the values of a step to a few buffers, each reused as soon as its value is no longer needed."""

from __future__ import annotations

from mgrade.deploy.program import Program

# Elementwise operations, which may write to the buffer they read.
IN_PLACE = ("gelu", "glu", "add", "scale", "norm")


class Slots:
    """The `sizes` of the buffers, and `where` each value is stored."""

    def __init__(self, program: Program):
        self.program = program
        self.sizes: list[int] = []
        self._place: dict[int, str] = {0: "input", len(program.ops): "output"}
        last = {value: index for index, op in enumerate(program.ops) for value in op.args}
        held: dict[int, int] = {}  # slot -> value in it
        for index, op in enumerate(program.ops):
            dying = {slot for slot, value in held.items() if last.get(value, -1) <= index}
            if op.kind in IN_PLACE:
                for slot in dying:
                    del held[slot]
            if op.kind in ("gated", "rotate") and not program.integer:
                self._place.setdefault(index + 1, f"state->hidden_{index}")
            elif index + 1 not in self._place:
                slot = self._free(held, program.widths[index + 1])
                held[slot] = index + 1
                self._place[index + 1] = f"v{slot}"
            for slot in dying:
                if held.get(slot) != index + 1:
                    held.pop(slot, None)

    def _free(self, held: dict[int, int], width: int) -> int:
        """A free buffer, preferably large enough; a new one if none is free."""
        free = [slot for slot in range(len(self.sizes)) if slot not in held]
        if not free:
            self.sizes.append(width)
            return len(self.sizes) - 1
        slot = min(free, key=lambda s: (self.sizes[s] < width, abs(self.sizes[s] - width)))
        self.sizes[slot] = max(self.sizes[slot], width)
        return slot

    def where(self, value: int) -> str:
        """The C expression for a value."""
        return self._place[value]
