"""From router logits to each token's experts and their weights. The projection that gives the
logits belongs to the module."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional

from humming.errors import LayoutError
from humming.moe.activations import runs_in_one_launch

SCORINGS = ("softmax", "sigmoid", "chosen_softmax", "chosen_sigmoid")
_MOST_PRODUCTS = 1 << 24  # that batch-invariant logits hold at once
GROUP_SCORES = ("top2", "max")


@dataclass(frozen=True)
class RouterRule:
    """How a model chooses `top_k` experts of a token, and weighs them.

    scoring       "softmax" or "sigmoid" over all experts; "chosen_softmax" (gpt-oss) and
                  "chosen_sigmoid" (Llama 4) over the logits of the chosen ones
    normalized    the chosen weights are divided by their sum
    scale         and multiplied by this
    groups, top_groups   experts stand in `groups` equal groups, of which `top_groups` may be chosen
                  from (1: no groups)
    group_score   "top2": the sum of a group's two best scores; "max": its best
    scales_input  x is multiplied by the weight before the expert, and not its output (Llama 4)
    """

    top_k: int
    scoring: str = "softmax"
    normalized: bool = True
    scale: float = 1.0
    groups: int = 1
    top_groups: int = 1
    group_score: str = "top2"
    scales_input: bool = False

    def __post_init__(self) -> None:
        check_top_k(self.top_k)
        if self.scoring not in SCORINGS:
            raise LayoutError(
                f"scoring must be one of {', '.join(SCORINGS)}, but got '{self.scoring}'"
            )
        if not 1 <= self.top_groups <= self.groups:
            raise LayoutError(
                "`1 <= top_groups <= groups` must hold, but got "
                f"top_groups={self.top_groups}, groups={self.groups}"
            )
        if self.group_score not in GROUP_SCORES:
            raise LayoutError(
                f"group_score must be one of {', '.join(GROUP_SCORES)}, but got "
                f"'{self.group_score}'"
            )

    def check(self, experts: int) -> None:
        """Raises LayoutError where so many experts cannot be chosen from by this rule."""
        if experts % self.groups:
            raise LayoutError(
                "`experts % groups == 0` must hold, but got "
                f"experts={experts}, groups={self.groups}"
            )
        most = experts // self.groups * self.top_groups
        if self.top_k > most:
            raise LayoutError(
                f"`top_k <= {most}` must hold as {self.top_groups} of {self.groups} groups of "
                f"{experts} experts may be chosen from, but got top_k={self.top_k}"
            )


def route(
    logits: torch.Tensor, rule: RouterRule, correction: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """`logits` [m, experts] -> ids int32 [m, top_k], weights fp32 [m, top_k].

    `correction` fp32 [experts] is added to scores for choosing, and not to the weights. Of equal
    scores the expert with the lower number is chosen, on every device. Raises LayoutError where
    they do not fit the rule.
    """
    if logits.ndim != 2:
        raise LayoutError(f"logits must be [m, experts], but got {list(logits.shape)}")
    rule.check(logits.shape[1])
    check_correction(correction, logits.shape[1])
    if _in_one_launch(logits, rule):
        from humming.jit.cuda import experts_around  # CUDA alone

        added = None if correction is None else correction.to(torch.float32).contiguous()
        return experts_around.route(
            logits,
            added if not rule.scoring.startswith("chosen") else None,
            rule.top_k,
            rule.scoring,
            rule.normalized,
            rule.scale,
            rule.groups if not rule.scoring.startswith("chosen") else 1,
            rule.top_groups,
            rule.group_score == "max",
        )
    return route_by_torch(logits, rule, correction)


def row_logits(x: torch.Tensor, router: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """fp32 [m, experts] of x [m, h] and router [experts, h], where a row's bits do not depend on m:
    products are added by halves, by functions that see one element at a time."""
    padding = (0, (1 << (x.shape[1] - 1).bit_length()) - x.shape[1])
    weight = functional.pad(router.to(torch.float32), padding)
    wide = functional.pad(x.to(torch.float32), padding)

    def of(rows: torch.Tensor) -> torch.Tensor:
        sums = rows[:, None] * weight
        while sums.shape[2] > 1:
            half = sums.shape[2] // 2
            sums = sums[..., :half] + sums[..., half:]
        return sums[..., 0]

    at_once = max(1, _MOST_PRODUCTS // weight.numel())
    together = torch.compiler.is_compiling() or len(x) <= at_once
    starts = () if together else range(0, len(x), at_once)
    logits = of(wide) if together else torch.cat([of(wide[s : s + at_once]) for s in starts])
    return logits if bias is None else logits + bias.to(torch.float32)


def check_top_k(top_k: object) -> None:
    """Raises LayoutError where `top_k` is not a number of experts that a token may have."""
    if type(top_k) is not int or top_k < 1:
        raise LayoutError(f"`top_k >= 1` must hold as a whole number, but got {top_k!r}")


def check_correction(correction: torch.Tensor | None, experts: int) -> None:
    """Raises LayoutError where `correction` is not a number an expert."""
    if correction is not None and tuple(correction.shape) != (experts,):
        raise LayoutError(f"correction must be [{experts}], but got {list(correction.shape)}")


def route_by_torch(
    logits: torch.Tensor, rule: RouterRule, correction: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same by torch's functions, on any device."""
    wide = logits.to(torch.float32)
    if rule.scoring.startswith("chosen"):
        best, ids = _best(wide, rule.top_k)
        chosen = best.softmax(-1) if rule.scoring == "chosen_softmax" else best.sigmoid()
        return ids, chosen * rule.scale if rule.scale != 1.0 else chosen
    scores = wide.softmax(-1) if rule.scoring == "softmax" else wide.sigmoid()
    choice = scores if correction is None else scores + correction.to(torch.float32)
    if rule.groups > 1:
        choice = _of_best_groups(choice, rule)
    _, ids = _best(choice, rule.top_k)
    weights = scores.gather(1, ids.long())
    if rule.normalized:
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
    return ids, weights * rule.scale if rule.scale != 1.0 else weights


def _in_one_launch(logits: torch.Tensor, rule: RouterRule) -> bool:
    """Whether a kernel of our own takes it: on a GPU, while nothing traces the call."""
    kinds = (torch.bfloat16, torch.float16, torch.float32)
    return (
        logits.is_cuda
        and logits.dtype in kinds
        and logits.is_contiguous()
        and type(logits) is torch.Tensor
        and not torch.compiler.is_compiling()
        and rule.top_k <= logits.shape[1] <= 1536
        and rule.groups <= 128
    )


def _of_best_groups(choice: torch.Tensor, rule: RouterRule) -> torch.Tensor:
    """Scores with those of the groups that are not chosen at minus infinity."""
    m, experts = choice.shape
    grouped = choice.view(m, rule.groups, experts // rule.groups)
    if rule.group_score == "max":
        of_group = grouped.amax(-1)
    else:
        of_group = grouped.topk(min(2, grouped.shape[-1]), dim=-1).values.sum(-1)
    _, groups = _best(of_group, rule.top_groups)
    kept = torch.zeros_like(of_group, dtype=torch.bool).scatter_(1, groups.long(), True)
    return grouped.masked_fill(~kept.unsqueeze(-1), float("-inf")).view(m, experts)


def _best(scores: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The `count` largest of each row, the first of equal ones first: values, places int32."""
    values, places = scores.sort(dim=-1, descending=True, stable=True)
    return values[:, :count], places[:, :count].to(torch.int32)


def combine(out: torch.Tensor, weights: torch.Tensor | None) -> torch.Tensor:
    """[m, top_k, n] weighted by fp32 [m, top_k] (None: 1 each) -> [m, n] of the same type: summed
    in fp32 in the order of the token's experts, rounded once, so that equal inputs give equal bits.
    """
    if runs_in_one_launch(out):
        from humming.jit.cuda import experts_around  # CUDA alone

        own = None if weights is None else weights.to(torch.float32).contiguous()
        return experts_around.combine(out, own)
    wide = out.to(torch.float32)
    total = wide.new_zeros(wide.shape[0], wide.shape[2])
    for place in range(out.shape[1]):
        part = wide[:, place]
        total = total + (part if weights is None else part * weights[:, place, None])
    return total.to(out.dtype)
