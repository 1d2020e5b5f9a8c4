"""What a run answers: the objects of `--json`, by attribute and by key. Sizes are bytes.

Made of docs/schemas by `cargo xtask codegen`. Do not edit.
"""

from __future__ import annotations

from typing import Any

from ._answer import Answer
from ._units import Bytes, Nanoseconds

__all__ = [
    "Check",
    "CheckLimits",
    "Export",
    "ExportFile",
    "Inspect",
    "InspectComparison",
    "InspectComparisonComparison",
    "InspectComparisonComparisonMoment",
    "InspectComparisonComparisonMomentByFunction",
    "InspectComparisonComparisonMomentByLabel",
    "InspectComparisonComparisonMomentByPool",
    "InspectComparisonComparisonMomentBySize",
    "InspectComparisonComparisonMomentByStream",
    "InspectComparisonComparisonRun",
    "InspectGrowth",
    "InspectGrowthStep",
    "InspectGrowthSuspect",
    "InspectInspected",
    "InspectMoment",
    "InspectMomentLive",
    "InspectMomentLiveByCaller",
    "InspectMomentLiveByCallerThrough",
    "InspectMomentLiveByClass",
    "InspectMomentLiveByLabel",
    "InspectMomentLiveByPool",
    "InspectMomentLiveBySize",
    "InspectMomentLiveByStream",
    "InspectMomentMemory",
    "InspectMomentMemoryBlocker",
    "InspectMomentMemoryByPool",
    "InspectMomentMemoryHeldOpen",
    "InspectMomentMemoryHeldOpenBlock",
    "InspectMomentMemoryHeldOpenBlockCaller",
    "InspectMomentWaste",
    "InspectRefused",
    "InspectRefusedLimit",
    "InspectRun",
    "InspectSummary",
    "MinCapacity",
    "MinCapacityDoubt",
    "MinCapacityLarger",
    "MinCapacityNative",
    "Plan",
    "PlanDoubt",
    "Replay",
    "ReplayAfterSecondIteration",
    "ReplayAfterSecondIterationAll",
    "ReplayAfterSecondIterationAllMean",
    "ReplayDoubt",
    "ReplayDriver",
    "ReplayFirstOom",
    "ReplayFirstOomBlocker",
    "ReplayFirstOomRemedy",
    "ReplayIteration",
    "ReplayNative",
    "ReplayNativeFigure",
    "Report",
    "ReportComparison",
    "ReportComparisonRun",
    "ReportSummary",
    "Whatif",
    "WhatifCandidate",
    "WhatifCandidateRoomy",
    "WhatifDoubt",
    "WhatifLimit",
    "WhatifNotExact",
    "WhatifSmallest",
    "WhatifSmallestGranule",
    "WhatifSmallestPytorch",
    "WhatifVerdict",
    "WhatifVerdictCard",
    "WhatifVerdictLeastChange",
    "WhatifVerdictNearest",
    "WhatifVerdictNearestFirstRefusal",
]


class Replay(Answer):
    schema: int
    workload: str
    file: str
    version: str
    doubt: None | ReplayDoubt
    notes: list[str]
    backend: str
    policy: str
    conf: str
    capacity: Bytes
    requested_bytes_peak: Bytes
    live_requested_bytes_peak: Bytes
    allocated_bytes_peak: Bytes
    active_bytes_peak: Bytes
    reserved_bytes_peak: Bytes
    efficiency: float
    reserved_over_live: float
    num_device_alloc: int
    num_device_free: int
    num_alloc_retries: int
    num_ooms: int
    refused: int
    marks: list[list[int]]
    events: int
    ops: int
    ns_per_op: float
    lag: int
    driver_peak_held: Bytes
    device_calls: dict[str, int]
    modelled_ns_by_call: dict[str, int]
    waited_ns: Nanoseconds
    modelled_driver_ns: Nanoseconds
    traps: int
    driver: ReplayDriver
    iterations: list[ReplayIteration]
    after_second_iteration: ReplayAfterSecondIteration
    first_oom: ReplayFirstOom
    native: ReplayNative
    plan: dict[str, Any]


class ReplayDoubt(Answer):
    text: str
    replayed: Bytes
    recorded: Bytes | None


class ReplayDriver(Answer):
    granules_mapped: int
    granules_unmapped: int
    granules_moved: int
    physical_creations: int
    created_bytes: Bytes
    host_waits: int
    device_wide_waits: int
    modelled_driver_ns: Nanoseconds


class ReplayIteration(Answer):
    iteration: int
    repeats: bool
    requested_peak_growth: int
    granules_mapped: int
    granules_unmapped: int
    granules_moved: int
    physical_creations: int
    created_bytes: Bytes
    host_waits: int
    device_wide_waits: int
    modelled_driver_ns: Nanoseconds


class ReplayAfterSecondIteration(Answer):
    all: ReplayAfterSecondIterationAll
    repeating: ReplayAfterSecondIterationAll


class ReplayAfterSecondIterationAll(Answer):
    iterations: int
    mean: ReplayAfterSecondIterationAllMean
    max: ReplayDriver


class ReplayAfterSecondIterationAllMean(Answer):
    granules_mapped: float
    granules_unmapped: float
    granules_moved: float
    physical_creations: float
    created_bytes: float
    host_waits: float
    device_wide_waits: float
    modelled_driver_ns: float


class ReplayFirstOom(Answer):
    event: int
    block: int
    iteration: int | None
    stream: int
    requested: Bytes
    block_size: Bytes
    tried: int
    device_total: Bytes
    device_free: Bytes
    allowed: int | None
    allocated: Bytes
    reserved: Bytes
    pending: int
    largest_fit: Bytes
    largest_anywhere: Bytes
    shortfall: Bytes
    blockers: list[ReplayFirstOomBlocker]
    remedies: list[ReplayFirstOomRemedy]
    message: str


class ReplayFirstOomBlocker(Answer):
    address: str
    size: Bytes
    beside: int
    would_free: Bytes


class ReplayFirstOomRemedy(Answer):
    what: str
    bytes: Bytes
    enough: bool


class ReplayNative(Answer):
    name: str
    recorded_by: str
    conf: str
    capacity: Bytes | None
    comparable: bool
    differences: list[str]
    modelled_driver_ns: Nanoseconds | None
    figures: dict[str, ReplayNativeFigure]


class ReplayNativeFigure(Answer):
    native: int
    verdict: str | None


class Whatif(Answer):
    schema: int
    workload: str
    file: str
    version: str
    doubt: None | WhatifDoubt
    current_conf: str
    current_policy: str
    exact: bool
    not_exact: list[WhatifNotExact]
    peak_requested: Bytes
    events: int
    has_iterations: bool
    lag: int
    roomy_capacity: Bytes
    replays: int
    verdicts: list[WhatifVerdict]
    smallest: WhatifSmallest
    candidates: list[WhatifCandidate]
    not_tried: list[str]
    reserved_before: Bytes | None
    limit: None | WhatifLimit
    did_without: str | None
    ends_refused: bool


class WhatifDoubt(Answer):
    text: str
    replayed: Bytes
    recorded: Bytes | None


class WhatifNotExact(Answer):
    reason: str
    figures: list[str]
    effect: str
    meaning: str


class WhatifVerdict(Answer):
    text: str
    advice: str
    capacity: Bytes
    card: None | WhatifVerdictCard
    fitting: int
    least_change: None | WhatifVerdictLeastChange
    without_retries: None | WhatifVerdictLeastChange
    nearest: None | WhatifVerdictNearest
    without_caching: None | WhatifVerdictLeastChange
    known: bool


class WhatifVerdictCard(Answer):
    name: str
    usable: Bytes
    example: str


class WhatifVerdictLeastChange(Answer):
    candidate: str
    policy: str
    changed_options: list[str]
    conf: str
    granule_conf: str | None
    steps: list[str]
    reserved_bytes_peak: Bytes
    num_alloc_retries: int
    modelled_driver_ns: Nanoseconds


class WhatifVerdictNearest(Answer):
    candidate: str
    conf: str
    refused: int
    first_refusal: None | WhatifVerdictNearestFirstRefusal


class WhatifVerdictNearestFirstRefusal(Answer):
    event: int
    iteration: int | None
    requested: Bytes


class WhatifSmallest(Answer):
    pytorch: WhatifSmallestPytorch
    granule: WhatifSmallestGranule


class WhatifSmallestPytorch(Answer):
    candidate: str
    conf: str
    granule_conf: str | None
    steps: list[str]
    min_capacity: Bytes
    peak_live: Bytes
    retries_at_min_capacity: int
    repeating_iterations: int
    device_wide_waits_in_repeating_iterations: int
    modelled_driver_ns: Nanoseconds
    step: int
    replays: int


class WhatifSmallestGranule(Answer):
    candidate: str
    conf: str
    granule_conf: str
    steps: list[str]
    min_capacity: Bytes
    peak_live: Bytes
    retries_at_min_capacity: int
    repeating_iterations: int
    device_wide_waits_in_repeating_iterations: int
    modelled_driver_ns: Nanoseconds
    step: int
    replays: int


class WhatifCandidate(Answer):
    name: str
    kind: str
    policy: str
    conf: str
    granule_conf: str | None
    caching: bool
    empty_cache_each_iteration: bool
    changed_options: list[str]
    roomy: WhatifCandidateRoomy
    outcomes: list[WhatifCandidateRoomy]


class WhatifCandidateRoomy(Answer):
    capacity: Bytes
    refused: int
    first_refusal: None | WhatifVerdictNearestFirstRefusal
    requested_bytes_peak: Bytes
    allocated_bytes_peak: Bytes
    active_bytes_peak: Bytes
    reserved_bytes_peak: Bytes
    num_device_alloc: int
    num_device_free: int
    num_alloc_retries: int
    num_ooms: int
    driver_peak_held: Bytes
    device_calls: dict[str, int]
    modelled_driver_ns: Nanoseconds


class WhatifLimit(Answer):
    set_by: str | None
    bytes: Bytes | None
    device_free: Bytes | None
    lifted: bool


class MinCapacity(Answer):
    schema: int
    workload: str
    file: str
    version: str
    doubt: None | MinCapacityDoubt
    notes: list[str]
    policy: str
    conf: str
    lag: int
    min_capacity: Bytes
    peak_live: Bytes
    retries_at_min_capacity: int
    repeating_iterations: int
    device_wide_waits_in_repeating_iterations: int
    modelled_driver_ns: Nanoseconds
    step: int
    replays: int
    larger: MinCapacityLarger
    native: MinCapacityNative


class MinCapacityDoubt(Answer):
    text: str
    replayed: Bytes
    recorded: Bytes | None


class MinCapacityLarger(Answer):
    tried: int
    refused: list[int]


class MinCapacityNative(Answer):
    min_capacity: Bytes
    retries_at_min_capacity: int
    verdict: str


class Plan(Answer):
    schema: int
    workload: str
    file: str
    version: str
    doubt: None | PlanDoubt
    notes: list[str]
    iteration: int | None
    streams: int
    across_streams: bool
    requests: int
    planned: int
    alignment: int
    resident_bytes: Bytes
    max_load: Bytes
    height: int
    ratio: float
    optimal: bool
    method: str
    seconds: float
    pattern: str | None


class PlanDoubt(Answer):
    text: str
    replayed: Bytes
    recorded: Bytes | None


class Inspect(Answer):
    name: str
    conf: str | None
    capacity: Bytes | None
    lower_bounds: bool
    notes: list[str]
    run: InspectRun
    moments: list[InspectMoment]
    refused: InspectRefused
    growth: InspectGrowth
    summary: InspectSummary
    schema: int
    version: str


class InspectRun(Answer):
    entries: int
    allocations: int
    older: int
    peak_live: Bytes
    peak_live_at: int
    peak_reserved: Bytes
    peak_reserved_at: int
    live_at_end: Bytes
    reserved_at_end: Bytes
    waited: int
    peak_waiting: Bytes
    peak_waiting_at: int
    refused: int
    iterations: int


class InspectMoment(Answer):
    what: str
    at: int
    iteration: int | None
    time_us: int | None
    live: InspectMomentLive
    memory: InspectMomentMemory
    waste: list[InspectMomentWaste]


class InspectMomentLive(Answer):
    bytes: Bytes
    count: int
    by_size: list[InspectMomentLiveBySize]
    by_class: list[InspectMomentLiveByClass]
    by_stream: list[InspectMomentLiveByStream]
    by_pool: list[InspectMomentLiveByPool]
    by_caller: list[InspectMomentLiveByCaller]
    by_label: list[InspectMomentLiveByLabel]


class InspectMomentLiveBySize(Answer):
    size: Bytes
    bytes: Bytes
    count: int


class InspectMomentLiveByClass(Answer):
    up_to: int
    bytes: Bytes
    count: int


class InspectMomentLiveByStream(Answer):
    stream: int
    bytes: Bytes
    count: int


class InspectMomentLiveByPool(Answer):
    pool: list[int]
    bytes: Bytes
    count: int


class InspectMomentLiveByCaller(Answer):
    file: str
    line: int
    function: str
    through: None | InspectMomentLiveByCallerThrough
    called_by: list[InspectMomentLiveByCallerThrough]
    bytes: Bytes
    count: int


class InspectMomentLiveByCallerThrough(Answer):
    file: str
    line: int
    function: str


class InspectMomentLiveByLabel(Answer):
    label: str
    bytes: Bytes
    count: int


class InspectMomentMemory(Answer):
    reserved: Bytes
    requested: Bytes
    rounding: Bytes
    tails: int
    waiting: Bytes
    free: Bytes
    outside: int
    segments: int
    idle_segments: int
    idle: int
    free_pieces: int
    largest_free: Bytes
    by_pool: list[InspectMomentMemoryByPool]
    held_open: list[InspectMomentMemoryHeldOpen]
    held_open_count: int
    held_open_free: Bytes
    blockers: list[InspectMomentMemoryBlocker]


class InspectMomentMemoryByPool(Answer):
    pool: list[int]
    stream: int
    small: bool
    reserved: Bytes
    requested: Bytes
    waiting: Bytes
    free: Bytes
    free_pieces: int
    largest_free: Bytes
    segments: int


class InspectMomentMemoryHeldOpen(Answer):
    address: str
    size: Bytes
    pool: list[int]
    stream: int
    used: int
    free: Bytes
    block_count: int
    blocks: list[InspectMomentMemoryHeldOpenBlock]


class InspectMomentMemoryHeldOpenBlock(Answer):
    address: str
    size: Bytes
    requested: Bytes
    since: int
    age_us: int | None
    waits: bool
    caller: None | InspectMomentMemoryHeldOpenBlockCaller
    label: str


class InspectMomentMemoryHeldOpenBlockCaller(Answer):
    file: str
    line: int
    function: str
    through: None | InspectMomentLiveByCallerThrough
    called_by: list[InspectMomentLiveByCallerThrough]


class InspectMomentMemoryBlocker(Answer):
    address: str
    size: Bytes
    requested: Bytes
    since: int
    age_us: int | None
    waits: bool
    caller: None | InspectMomentMemoryHeldOpenBlockCaller
    label: str
    beside: int
    would_free: Bytes


class InspectMomentWaste(Answer):
    size: Bytes
    count: int
    rounding: Bytes
    tails: int


class InspectRefused(Answer):
    at: int
    iteration: int | None
    size: Bytes
    block: int
    segment: int
    stream: int
    caller: None | InspectMomentMemoryHeldOpenBlockCaller
    device_free: Bytes
    usable_free: Bytes
    usable_largest: Bytes
    other_free: Bytes
    other_largest: int
    waiting: Bytes
    verdict: str
    limit: None | InspectRefusedLimit
    missing: int
    in_the_way: list[InspectMomentMemoryBlocker]
    fixed_segments: bool
    most_live: None | InspectMomentLiveByCaller


class InspectRefusedLimit(Answer):
    set_by: str | None
    bytes: Bytes | None
    device_free: Bytes | None
    lifted: bool


class InspectGrowth(Answer):
    marks: str
    period: int | None
    steps: list[InspectGrowthStep]
    per_step: int | None
    suspects: list[InspectGrowthSuspect]


class InspectGrowthStep(Answer):
    number: int
    at: int
    live: Bytes
    peak_live: Bytes
    peak_reserved: Bytes
    allocations: int
    frees: int


class InspectGrowthSuspect(Answer):
    caller: None | InspectMomentMemoryHeldOpenBlockCaller
    size: Bytes | None
    label: str
    grew_in: int
    steps: int
    count: list[int]
    bytes: list[int]


class InspectSummary(Answer):
    text: str
    peak_live: Bytes
    peak_reserved: Bytes
    capacity: Bytes | None
    lower_bounds: bool
    refused: int
    why: None | str
    help: str


class InspectComparison(Answer):
    schema: int
    version: str
    before: InspectInspected
    after: InspectInspected
    comparison: InspectComparisonComparison


class InspectInspected(Answer):
    name: str
    conf: str | None
    capacity: Bytes | None
    lower_bounds: bool
    notes: list[str]
    run: InspectRun
    moments: list[InspectMoment]
    refused: InspectRefused
    growth: InspectGrowth
    summary: InspectSummary


class InspectComparisonComparison(Answer):
    run: list[InspectComparisonComparisonRun]
    moments: list[InspectComparisonComparisonMoment]


class InspectComparisonComparisonRun(Answer):
    name: str
    bytes: bool
    before: int
    after: int


class InspectComparisonComparisonMoment(Answer):
    what: str
    memory: list[InspectComparisonComparisonRun]
    by_function: list[InspectComparisonComparisonMomentByFunction]
    by_label: list[InspectComparisonComparisonMomentByLabel]
    by_size: list[InspectComparisonComparisonMomentBySize]
    by_stream: list[InspectComparisonComparisonMomentByStream]
    by_pool: list[InspectComparisonComparisonMomentByPool]


class InspectComparisonComparisonMomentByFunction(Answer):
    file: str
    function: str
    bytes: list[int]
    count: list[int]


class InspectComparisonComparisonMomentByLabel(Answer):
    label: str
    bytes: list[int]
    count: list[int]


class InspectComparisonComparisonMomentBySize(Answer):
    size: Bytes
    bytes: list[int]
    count: list[int]


class InspectComparisonComparisonMomentByStream(Answer):
    stream: int
    bytes: list[int]
    count: list[int]


class InspectComparisonComparisonMomentByPool(Answer):
    pool: list[int]
    bytes: list[int]
    count: list[int]


class Report(Answer):
    entries: int
    allocations: int
    peak_live: Bytes
    peak_reserved: Bytes
    refused: int
    summary: ReportSummary
    notes: list[str]
    schema: int
    file: str
    bytes: Bytes


class ReportSummary(Answer):
    text: str
    peak_live: Bytes
    peak_reserved: Bytes
    capacity: Bytes | None
    lower_bounds: bool
    refused: int
    why: None | str
    help: str


class ReportComparison(Answer):
    schema: int
    file: str
    bytes: Bytes
    runs: list[ReportComparisonRun]


class ReportComparisonRun(Answer):
    entries: int
    allocations: int
    peak_live: Bytes
    peak_reserved: Bytes
    refused: int
    summary: ReportSummary
    notes: list[str]
    name: str


class Check(Answer):
    schema: int
    ok: bool
    reserved_peak: Bytes
    growth: float | None
    refused: int
    why: str | None
    limits: CheckLimits
    exceeded: list[str]
    lower_bounds: bool


class CheckLimits(Answer):
    reserved_peak: Bytes | None
    growth: float | None


class Export(Answer):
    schema: int
    run: str
    workload: str
    notes: list[str]
    files: list[ExportFile]


class ExportFile(Answer):
    path: str
    entries: int
    bytes: Bytes
