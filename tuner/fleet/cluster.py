"""`--ray`: one actor for each device of a Ray cluster; placement, restarts and retries are Ray's.
The doorway to Ray: it is imported here alone, when asked for. What an actor does is member.py."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import TracebackType
from typing import Any

import torch

from humming.errors import HummingError, UsageError
from humming.jit.detect import find_device
from humming.jit.identity import here, serving_device
from humming.spec.identity import Identity
from tuner.fleet.member import carry_out
from tuner.fleet.work import Order, Result, Work
from tuner.planning.budget import Budget
from tuner.store.address import parse

RETRIES = 3
KNOCK_TIMEOUT_S = 10.0
JOIN_TIMEOUT_S = 120.0
LATE_S = 60.0
"""So long after the budget an actor may still end; one that Ray never placed is not waited for."""

Note = Callable[[str], None]


class Member:
    """The actor: tunes on the device that Ray gave its process."""

    def __init__(self, threads: int, of_node: int) -> None:
        if threads:
            torch.set_num_threads(threads)
        self._cpus = _share(of_node)

    def identity(self) -> Identity:
        """What its evidence is true of."""
        device = find_device()
        return here(serving_device() if device.kind == "cpu" else device)

    def pid(self) -> int:
        """Its process, for whoever looks for it on its host."""
        return os.getpid()

    def tune(self, order: Order) -> Result:
        """Carries the order out on its own device. An error of ours is a note: it would be the same
        on a retry."""
        notes: list[str] = []
        device = self.identity().device
        try:
            done = carry_out(replace(order, device=device, cpus=self._cpus), notes.append)
        except HummingError as error:
            return Result(device.name, 0, (*notes, str(error)))
        return replace(done, notes=tuple(notes))


def _share(of_node: int) -> tuple[int, ...]:
    """This actor's part of its host's CPUs, by the GPU that it has; all of them without one."""
    import ray

    cpus, gpus = sorted(os.sched_getaffinity(0)), ray.get_gpu_ids()
    if of_node < 2 or not gpus or len(cpus) < of_node:
        return ()
    each, index = len(cpus) // of_node, int(gpus[0]) % of_node
    return tuple(cpus[index * each : (index + 1) * each])


@dataclass
class RayCrew:
    """The devices of the Ray cluster at `address`, as one crew on the database at `url`; a context
    manager."""

    address: str
    url: str = field(repr=False)
    actors: list[Any] = field(default_factory=list)
    _aside: ExitStack = field(default_factory=ExitStack, repr=False)

    def __enter__(self) -> RayCrew:
        ray = _ray()
        # Ray prints notes of its own, while standard output is for the result alone.
        self._aside.enter_context(redirect_stdout(sys.stderr))
        try:
            self._join(ray)
            nodes = [node for node in ray.nodes() if node["Alive"]]
            _require_reach(self.url, nodes)
            self.actors = list(_placed(ray, nodes))
            if not self.actors:
                raise UsageError(f"the Ray cluster at {self.address} must have a device, but none")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends all actors, and leaves the cluster."""
        ray = _ray()
        for actor in self.actors:
            with suppress(Exception):  # already gone
                ray.kill(actor, no_restart=True)
        self.actors = []
        ray.shutdown()
        self._aside.close()

    @property
    def identity(self) -> Identity:
        """What the evidence of the first actor that answers is true of."""
        ray = _ray()
        asked = [actor.identity.remote() for actor in self.actors]
        found, _ = ray.wait(asked, timeout=JOIN_TIMEOUT_S)
        if not found:
            raise UsageError(
                f"no actor of the Ray cluster at {self.address} started within "
                f"{JOIN_TIMEOUT_S:.0f} s; look at ray status, other work may hold its devices"
            )
        identity: Identity = _got(ray, found[0])
        return identity

    def run(
        self,
        work: Work,
        until: datetime | None,
        budget: Budget,
        note: Note,
        tick: Callable[[], None],
    ) -> list[Result]:
        """One order an actor until all have ended. Raises HummingError where none could work."""
        ray = _ray()
        order = Order(work, self.url, self.identity.device, until)
        waiting = {actor.tune.remote(order): actor for actor in self.actors}
        results: list[Result] = []
        lost: HummingError | None = None
        while waiting and budget.left_with_s(LATE_S):
            for done in ray.wait(list(waiting), timeout=1.0)[0]:
                actor = waiting.pop(done)
                try:
                    results.append(_got(ray, done))
                except HummingError as error:
                    lost = error
                    note(str(error))
                self.actors.remove(actor)
                del actor  # which frees its device for one that Ray has to place anew
            tick()
        if lost and not results:
            raise lost
        return results

    def _join(self, ray: Any) -> None:
        failure: str | None = None
        try:
            _knock(self.address)
            ray.init(self.address, logging_level="ERROR", log_to_driver=False)
        except (ConnectionError, ValueError, RuntimeError, OSError, TimeoutError) as error:
            failure = " ".join(str(error).split())[:200]
        if failure is not None:
            raise UsageError(
                f"no Ray cluster answers at {self.address} ({failure}); start one with ray start "
                "--head, and give --ray its HOST:PORT"
            )


def _knock(address: str) -> None:
    """Raises OSError where nobody listens at HOST:PORT, for which Ray itself would wait minutes."""
    host, _, port = address.rpartition(":")
    if host and "/" not in host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=KNOCK_TIMEOUT_S).close()


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise UsageError(
            "--ray needs the package ray; run pip install 'humming-tune[ray]' on every host"
        ) from None
    return ray


def _got(ray: Any, reference: Any) -> Any:
    """What an actor answered. Raises HummingError where it is lost for good."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayError as error:
        said = (str(error).strip().splitlines() or [""])[-1][:200]
        lost = HummingError(f"an actor was lost for good ({type(error).__name__}: {said})")
    raise lost


def _placed(ray: Any, nodes: list[dict[str, Any]]) -> Iterator[Any]:
    """An actor for each GPU, wherever Ray finds one free; without any GPU, one for each node's
    CPUs."""
    lasting = {"max_restarts": RETRIES, "max_task_retries": RETRIES}
    member = ray.remote(Member)
    gpus = [int(node["Resources"].get("GPU", 0)) for node in nodes]
    if any(gpus):
        for count in gpus:
            for _ in range(count):
                yield member.options(num_gpus=1, num_cpus=1, **lasting).remote(0, max(gpus))
        return
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    for node in nodes:
        cpus = int(node["Resources"].get("CPU", 0))
        if cpus:  # all of them, as other work of Ray's would disturb the timing
            here_only = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            options = {"num_cpus": cpus, "scheduling_strategy": here_only, **lasting}
            yield member.options(**options).remote(cpus, 1)


def _require_reach(url: str, nodes: list[dict[str, Any]]) -> None:
    """Raises UsageError where some node cannot have the database: a SQLite file is of one host."""
    hosts = {node["NodeManagerHostname"] for node in nodes}
    if parse(url).kind == "sqlite" and len(hosts) > 1:
        raise UsageError(
            f"--ray over {len(hosts)} hosts needs a database that all of them reach, but got "
            f"{parse(url).shown}; give --db postgresql://..."
        )
