//! Results of measurements as data: one versioned JSON object with its findings, from which every
//! table, page and comparison is rendered. This crate neither measures nor prints.
//!
//! Times are in nanoseconds and rates per second, with the unit in the field's name; a rate counts
//! what was really sent, never what was planned. Readers must ignore unknown fields; a field
//! changes its meaning only with the number after the schema's name.

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
mod invalid_reason;
mod limit;
mod live;
mod load;
mod nts_ke;
mod offset;
mod path_stall;
mod path_tcp;
mod path_udp;
mod progress;
mod query;
mod relay_tree;
mod rfc3339;
mod run_list;
mod series;

pub use after::{AFTER_SCHEMA, AfterEnd, AfterResult, Dependency, DependencyKind};
pub use at::{AT_SCHEMA, AtEnd, AtProgram, AtResult, AtScheduling, AtTimescale};
pub use bench_cores::{
    BENCH_CORES_SCHEMA, BenchCoresResult, CaptureCheck, CoresColumn, CoresPoint, CoresRepetition,
    Spread,
};
pub use bench_nts::{BENCH_NTS_SCHEMA, BenchNtsResult, NtsCapacity};
pub use bench_relay::{
    BENCH_RELAY_SCHEMA, BenchRelayResult, FLAT_RATIO_MAX, RelayCell, RelayDirect, RelayEngine,
    RelayHalfRate, RelayRepetition, RelayShape,
};
pub use campaign::{
    CAMPAIGN_SCHEMA, CampaignCapacity, CampaignChild, CampaignClock, CampaignDelivery,
    CampaignDistribution, CampaignEnd, CampaignLimit, CampaignLimitOf, CampaignNode, CampaignPair,
    CampaignPart, CampaignPathRow, CampaignPlan, CampaignRelay, CampaignResult, CampaignRole,
    CampaignStart, CampaignTask, CampaignTrial, CampaignUnusableAgent, MergedResults,
};
pub use clients::{CompliantClients, Fairness};
pub use clock::{
    CLOCK_SCHEMA, ClockBucket, ClockConditions, ClockCounts, ClockMethod, ClockMethodKind,
    ClockOscillator, ClockOutage, ClockResult,
};
pub use clock_compare::{
    CLOCK_COMPARE_SCHEMA, ClockCompareResult, ClockSample, ClockStep, ComparedClock, ComparedKind,
};
pub use clock_log::{
    CLOCK_LOG_LINE_MAX, CLOCK_LOG_SCHEMA, ClockLogLine, ClockLogPoint, ClockLogReader,
    ClockLogResult, ClockLogState, LoggedClock,
};
pub use compare::{
    COMPARE_SCHEMA, CompareResult, CompareVerdict, ComparedCondition, ComparedMetric,
    ComparedMetricKind, ComparedRun, ResultComparison, damaged, distributions, numbers,
};
pub use cycle::{
    CYCLE_SCHEMA, CycleBucket, CycleClock, CycleCost, CycleNode, CycleOverhead, CycleResult,
    CycleRun, CycleServed, CycleSharedTask, CycleSignal, CycleSignalStats, CycleSpeedup,
    CycleState, CycleStep, CycleTask, TaskPolicy, TaskScheduling,
};
pub use cycle_predict::{
    CYCLE_PREDICT_SCHEMA, CyclePredictBound, CyclePredictCost, CyclePredictCostKind,
    CyclePredictMeasured, CyclePredictMethod, CyclePredictPercentile, CyclePredictResult,
    CyclePredictTask, CyclePredictTerm, CyclePredictTermKind, CyclePredictVerdict,
};
pub use cycle_test::{
    CYCLE_TEST_SCHEMA, CycleTestApplication, CycleTestCount, CycleTestDetection,
    CycleTestDetectionKind, CycleTestFault, CycleTestFaultKind, CycleTestFirstDetection,
    CycleTestGrade, CycleTestNode, CycleTestResult, CycleTestRun, CycleTestScale, CycleTestScore,
    CycleTestSearch, CycleTestSource, CycleTestStage, CycleTestState, CycleTestTrial,
};
pub use demo::{DEMO_SCHEMA, DemoCandidate, DemoResult};
pub use distribution::{Distribution, MergeError};
pub use finding::{Finding, FindingCode, Severity};
pub use horolog_stats::ExactSummary;
pub use host::Host;
pub use host_all::{
    HOST_ALL_SCHEMA, HostAllResult, HostPart, HostPartOutcome, HostPartState, HostVerdict,
    WorstFinding,
};
pub use host_clock::{
    ClockFacts, ClocksourceFacts, CoreMonotonicity, HOST_CLOCK_SCHEMA, HostClockResult, HzSource,
    IdleState, KernelDiscipline, PhcFacts, RtcFacts, TickFacts, TickMode, WakeupFacts,
};
pub use host_conditions::{HostConditions, SchedulingPolicy, ThreadScheduling};
pub use host_delay::{
    ClaimVerdict, DelayCell, DelayClaim, DelayKind, DelaySetting, DelaySlack, HOST_DELAY_SCHEMA,
    HostDelayResult, InterruptedDelay, Resumption,
};
pub use host_interrupt::{
    HOST_INTERRUPT_SCHEMA, HandlerDelay, HandlerKind, HandlerRepetition, HostInterruptResult,
    OsNoise, OsNoiseGap, OsNoiseShare,
};
pub use host_nic::{
    HOST_NIC_SCHEMA, HostNicResult, NicAdvice, NicCoalescing, NicDrops, NicInterrupt, NicOffload,
    NicPurpose, NicQueues, NicRings, NicRss, NicTimestamps, NicUnavailable, NicXdp, NicXdpFeature,
    NicXdpMode,
};
pub use host_switch::{
    ExchangeRepetition, HOST_SWITCH_SCHEMA, HostSwitchResult, StepsRepetition, SwitchExchange,
    SwitchMechanism, SwitchPeer, SwitchPlacement, SwitchSteps,
};
pub use host_timer::{
    HOST_TIMER_SCHEMA, HostTimerResult, TimerBreak, TimerCore, TimerCost, TimerStretch,
};
pub use invalid_reason::InvalidReason;
pub use limit::{LimitResult, LimitUnit};
pub use live::{
    LIVE_SCHEMA, LiveCounts, LiveRun, LiveState, PartProgress, PartSummary, RecentItems,
    SNAPSHOTS_MAX, Snapshot,
};
pub use load::{
    ClassCounts, LOAD_SCHEMA, LoadEngineKind, LoadResult, LossLocation, MixPartResult, RequestMode,
    Responses, SearchEnd, SearchKind, SearchResult, Spacing, Target, Trial,
};
pub use nts_ke::{FailureReason, NtsKeResult, NtsKeTrial};
pub use offset::{OffsetMethod, SignedDistribution};
pub use path_stall::{
    AckDelays, CONNECTIONS_MISSED_MAX, DelayedAck, HoldSamples, Mechanism, PATH_STALL_SCHEMA,
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
pub use progress::{Progress, ProgressPublisher, ProgressSlots, SNAPSHOT_INTERVAL, lock};
pub use query::{
    AllanDeviation, BestSample, Difference, Drift, ExchangeSample, HardwareClock, LeapState,
    NtsUse, QUERY_SCHEMA, QueryCounts, QueryEnd, QueryEndReason, QueryResult, ServerResult,
    ServerState, TimestampCounts, TimestampSource,
};
pub use relay_tree::{
    RELAY_TREE_SCHEMA, RelayTreeAssumption, RelayTreeCalibration, RelayTreeEngine,
    RelayTreeEquation4, RelayTreeGain, RelayTreeMeasured, RelayTreeMethod, RelayTreeNode,
    RelayTreeNodeGain, RelayTreeProcessing, RelayTreeResult, RelayTreeShape, RelayTreeShapeKind,
};
pub use rfc3339::{rfc3339_micros, rfc3339_now};
pub use run_list::{RUN_LIST_SCHEMA, RunList, StoredRun};
pub use series::{Outage, Overload, Percentiles, Point, Series};

/// Environment variable with the path of the result store, if no flag gives one.
pub const STORE_VARIABLE: &str = "HOROLOG_STORE";
/// Value of that variable for which no result is stored.
pub const STORE_NONE: &str = "none";
