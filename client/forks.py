"""What a process that was forked must not share with its parent: connections, and memory lent to calls."""

import os
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

_renewals: WeakKeyDictionary[Any, Callable[[Any], None]] = WeakKeyDictionary()


def renew_in_child(owner: T, renew: Callable[[T], None]) -> None:
    """Have `renew(owner)` called in each process that is forked while `owner` lives."""
    _renewals[owner] = renew


def _renew_all() -> None:
    for owner, renew in list(_renewals.items()):
        renew(owner)


if hasattr(os, "register_at_fork"):  # where a process can be forked
    os.register_at_fork(after_in_child=_renew_all)
