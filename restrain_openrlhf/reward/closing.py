"""When a group ends: deadlines, who scores it, when it is forgotten; pure functions on one prompt's state."""

from collections.abc import Collection
from operator import is_

from restrain_openrlhf.reward.seating import DEAD_AFTER, Rules, each_seat, is_open, is_vacant, with_groups
from restrain_openrlhf.reward.seats import Group, GroupResult, Moment, PromptState, Seat


def sweep(state: PromptState, moment: Moment, rules: Rules) -> PromptState:
    """What time alone changes: dead replicas' seats, seats nobody came back for, deadlines, old results."""
    vacated = each_seat(state, lambda seat: _vacate_if_dead(seat, moment))
    groups = [_sweep_group(group, moment, rules) for group in vacated.groups]
    needed = [group for group in groups if _is_needed(group, moment, rules)]
    same = len(needed) == len(state.groups) and all(map(is_, needed, state.groups))
    # The very same object says at once that nothing is to be done.
    return state if same else with_groups(state, needed)


def _vacate_if_dead(seat: Seat, moment: Moment) -> Seat:
    if seat.holder is None or not is_vacant(seat, moment):
        return seat
    return seat.model_copy(update={"holder": None, "vacated": moment.now, "orphaned": True})


def _sweep_group(group: Group, moment: Moment, rules: Rules) -> Group:
    if group.scorer is not None and moment.now - moment.beats.get(group.scorer, 0.0) > DEAD_AFTER:
        group = group.model_copy(update={"scorer": None})
    if group.result is None and is_open(group):
        kept = tuple(seat for seat in group.seats if not _is_given_up(seat, moment, rules))
        partial = len(kept) < rules.n and moment.now - group.opened >= rules.deadline
        if partial or len(kept) < len(group.seats):
            group = group.model_copy(update={"seats": kept, "partial": partial})
    if group.result is not None:
        given_up = {seat.name for seat in group.seats if _is_given_up(seat, moment, rules)}
        if given_up:
            seats = tuple(
                seat.model_copy(update={"answered": True}) if seat.name in given_up else seat for seat in group.seats
            )
            group = group.model_copy(update={"seats": seats})
    return group


def _is_given_up(seat: Seat, moment: Moment, rules: Rules) -> bool:
    return seat.holder is None and not seat.answered and moment.now - seat.vacated > rules.retake


def _is_needed(group: Group, moment: Moment, rules: Rules) -> bool:
    if group.result is None:
        return bool(group.seats)
    expects_more = group.partial and len(group.seats) < rules.n
    # A replica that was only slow comes back for its requests' results, however late.
    expects_more = expects_more or any(seat.orphaned or not seat.answered for seat in group.seats)
    return expects_more and moment.now - group.scored <= rules.keep


def claim(
    state: PromptState, replica: str, rules: Rules, scoring: Collection[str]
) -> tuple[PromptState, tuple[Group, ...]]:
    """The groups that are to be scored now, by this replica.

    A group that is this replica's already and not among those it is `scoring` was claimed by a change whose reply was
    lost, and is claimed again.
    """
    ready = {
        group.name
        for group in state.groups
        if _is_ready(group, rules) and (group.scorer is None or (group.scorer == replica and group.name not in scoring))
    }
    if not ready:
        return state, ()
    groups = tuple(
        group.model_copy(update={"scorer": replica}) if group.name in ready else group for group in state.groups
    )
    return with_groups(state, groups), tuple(group for group in groups if group.name in ready)


def _is_ready(group: Group, rules: Rules) -> bool:
    return group.result is None and (group.partial or len(group.seats) >= rules.n)


def finish(state: PromptState, scored: Group, result: GroupResult, moment: Moment) -> PromptState:
    """The result of a group as it was when claimed. The first result stays; one for other seats is of no use."""
    return with_groups(
        state,
        tuple(
            group.model_copy(update={"result": result, "scored": moment.now})
            if group.name == scored.name and group.result is None and _texts(group) == _texts(scored)
            else group
            for group in state.groups
        ),
    )


def _texts(group: Group) -> tuple[str, ...]:
    return tuple(seat.text for seat in group.seats)
