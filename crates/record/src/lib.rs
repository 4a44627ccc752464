//! The result of a measurement as data: one versioned JSON object with its doubts, from which every
//! table, page and comparison is rendered. Nothing here measures or prints.
//!
//! Times are in nanoseconds and rates per second, with the unit in the field's name; a rate is of
//! what was really sent, never of what was planned. Fields that a reader does not know are to be
//! ignored; a field changes its meaning only with the number behind the schema's name.

mod after;
mod at;
mod bench_cores;
mod bench_nts;
mod bench_relay;
mod campaign;
mod clients;
mod clock;
mod clock_compare;
mod clock_log;
mod compare;
mod cycle;
mod cycle_predict;
mod cycle_test;
mod demo;
mod distribution;
mod establishment;
mod finding;
mod host;
mod host_all;
mod host_clock;
mod host_conditions;
mod host_delay;
mod host_interrupt;
mod host_nic;
mod host_switch;
mod host_timer;
mod limit;
mod load;
mod look;
mod offset;
mod path_stall;
mod path_tcp;
mod path_udp;
mod query;
mod relay_tree;
mod rfc3339;
mod run_list;
mod series;
mod so_far;

pub use after::{AFTER_SCHEMA, AfterEnd, AfterResult, Dependency, DependencyKind};
pub use at::{AT_SCHEMA, AtEnd, AtProgram, AtResult, AtScheduling, AtTimescale};
pub use bench_cores::{
    BENCH_CORES_SCHEMA, BenchCoresResult, CaptureCheck, CoresColumn, CoresPoint, CoresRun, Spread,
};
pub use bench_nts::{BENCH_NTS_SCHEMA, BenchNtsResult, NtsCapacity};
pub use bench_relay::{
    BENCH_RELAY_SCHEMA, BenchRelayResult, FLAT_RATIO_MAX, RelayCell, RelayDirect, RelayEngine,
    RelayHalf, RelayRound, RelayShape,
};
pub use campaign::{
    CAMPAIGN_SCHEMA, CampaignCapacity, CampaignChild, CampaignClock, CampaignDelivery,
    CampaignDistribution, CampaignEnd, CampaignFigures, CampaignLimit, CampaignLimitOf,
    CampaignNode, CampaignPair, CampaignPart, CampaignPathRow, CampaignPlan, CampaignRelay,
    CampaignResult, CampaignRole, CampaignStart, CampaignTask, CampaignTrial, CampaignUnusable,
};
pub use clients::{Fairness, WellBehaved};
pub use clock::{
    CLOCK_SCHEMA, ClockConditions, ClockCounts, ClockMethod, ClockMethodKind, ClockOscillator,
    ClockOutage, ClockResult, ClockStretch,
};
pub use clock_compare::{
    CLOCK_COMPARE_SCHEMA, ClockCompareResult, ClockSample, ClockStep, ComparedClock, ComparedKind,
};
pub use clock_log::{
    CLOCK_LOG_LINE_MAX, CLOCK_LOG_SCHEMA, ClockLogLine, ClockLogPoint, ClockLogReader,
    ClockLogResult, ClockLogState, LoggedClock,
};
pub use compare::{
    COMPARE_SCHEMA, CompareResult, CompareVerdict, ComparedCondition, ComparedFigure,
    ComparedFigureKind, ComparedRun, Comparison, damaged, distributions, numbers,
};
pub use cycle::{
    CYCLE_SCHEMA, CycleClock, CycleCost, CycleNode, CycleOverhead, CycleResult, CycleRun,
    CycleSent, CycleServed, CycleShared, CycleSignal, CycleSpeedup, CycleState, CycleStep,
    CycleStretch, CycleTask, TaskPolicy, TaskScheduling,
};
pub use cycle_predict::{
    CYCLE_PREDICT_SCHEMA, CyclePredictBound, CyclePredictCost, CyclePredictCostKind,
    CyclePredictMeasured, CyclePredictMethod, CyclePredictResult, CyclePredictTask,
    CyclePredictTerm, CyclePredictTermKind, CyclePredictVerdict, CyclePredictWorst,
};
pub use cycle_test::{
    CYCLE_TEST_SCHEMA, CycleTestApplication, CycleTestCount, CycleTestDetected, CycleTestFault,
    CycleTestFaultKind, CycleTestGrade, CycleTestNode, CycleTestNotice, CycleTestNoticed,
    CycleTestResult, CycleTestRun, CycleTestScale, CycleTestScore, CycleTestSearch,
    CycleTestSource, CycleTestStage, CycleTestState, CycleTestTrial,
};
pub use demo::{Candidate, DEMO_SCHEMA, DemoResult};
pub use distribution::{Distribution, MergeError};
pub use establishment::{EstablishmentResult, EstablishmentTrial, FailureReason};
pub use finding::{Code, Finding, Severity};
pub use host::Host;
pub use host_all::{
    HOST_ALL_SCHEMA, HostAllResult, HostPart, HostPartOutcome, HostPartState, HostVerdict,
    WorstFinding,
};
pub use host_clock::{
    ClockFacts, ClocksourceFacts, CoreOrder, HOST_CLOCK_SCHEMA, HostClockResult, HzSource,
    IdleState, KernelDiscipline, PhcFacts, RtcFacts, TickFacts, TickMode, WakingFacts,
};
pub use host_conditions::{HostConditions, SchedulingPolicy, ThreadScheduling};
pub use host_delay::{
    Claim, ClaimVerdict, DelayCell, DelayKind, DelaySetting, DelaySlack, HOST_DELAY_SCHEMA,
    HostDelayResult, InterruptedDelay, Resumption,
};
pub use host_interrupt::{
    HOST_INTERRUPT_SCHEMA, HandlerDelay, HandlerKind, HandlerRepetition, HostInterruptResult,
    StolenCore, StolenGap, StolenPart,
};
pub use host_nic::{
    HOST_NIC_SCHEMA, HostNicResult, NicAdvice, NicCoalescing, NicDrops, NicInterrupt, NicOffload,
    NicPurpose, NicQueues, NicRings, NicSpreading, NicTimestamps, NicUntold, NicXdp, NicXdpAbility,
    NicXdpMode,
};
pub use host_switch::{
    ExchangeRepetition, HOST_SWITCH_SCHEMA, HostSwitchResult, StepsRepetition, SwitchExchange,
    SwitchPartner, SwitchPlacement, SwitchSteps, SwitchWay,
};
pub use host_timer::{
    HOST_TIMER_SCHEMA, HostTimerResult, TimerBreak, TimerCore, TimerCost, TimerStretch,
};
pub use limit::{LimitResult, LimitUnit};
pub use load::{
    ClassCounts, Engine, InvalidReason, LOAD_SCHEMA, LoadResult, Mode, Part, Place, Responses,
    SearchEnd, SearchKind, SearchResult, Spacing, Target, Trial,
};
pub use look::{
    LIVE_SCHEMA, LOOKS_MAX, Look, LookCounts, LookEnded, LookPart, LookState, Looks, Ring,
};
pub use offset::{OffsetMethod, SignedDistribution};
pub use path_stall::{
    AckDelays, CONNECTIONS_MISSED_MAX, DelayedAck, HeldSamples, Mechanism, PATH_STALL_SCHEMA,
    PathStallResult, SocketOption, StallCell, StallClaim, StallEvidence, StallKernel, StallPattern,
    StallWatch, WatchedConnection, WindowStep,
};
pub use path_tcp::{
    PATH_TCP_SCHEMA, PathEnd, PathTcpResult, TcpBandwidth, TcpDirection, TcpFigures, TcpLatency,
    TcpSettings, TcpTarget, ZeroCopyCounts,
};
pub use path_udp::{
    PATH_UDP_SCHEMA, PathCost, PathCounts, PathDirection, PathHostLosses, PathLoad, PathLosses,
    PathMode, PathProtocol, PathRow, PathTarget, PathUdpResult, RowEnd,
};
pub use query::{
    AllanDeviation, Best, Difference, Drift, Figures, HardwareClock, LeapState, NtsUse,
    QUERY_SCHEMA, QueryCounts, QueryEnd, QueryEndReason, QueryResult, Sample, ServerResult,
    ServerState, StampCounts, StampKind,
};
pub use relay_tree::{
    RELAY_TREE_SCHEMA, RelayTreeAssumption, RelayTreeCalibration, RelayTreeEngine,
    RelayTreeEquation4, RelayTreeGain, RelayTreeMeasured, RelayTreeMethod, RelayTreeNode,
    RelayTreeNodeGain, RelayTreeProcessing, RelayTreeResult, RelayTreeShape, RelayTreeShapeKind,
};
pub use rfc3339::{rfc3339_micros, rfc3339_now};
pub use run_list::{KeptRun, RUN_LIST_SCHEMA, RunList};
pub use series::{Overload, Percentiles, Point, Series, Silence};
pub use so_far::{LOOK_EVERY, Slots, SoFar, Telling, entered};

/// The environment variable that names the store of results, where no flag does.
pub const STORE_VARIABLE: &str = "HOROLOG_STORE";
/// In its place: no result is kept.
pub const STORE_NONE: &str = "none";
