//! Types of measurement results: each command writes one JSON object with its findings, from which
//! every table, page and comparison is rendered. This crate neither measures nor prints.
//!
//! The unit of a time is at the end of its field's name (such as `_ns` or `_s`), also for a
//! distribution, whose values are in ns. Rates are per second. Readers must ignore unknown fields.
//! If the meaning of a field changes, the number after the schema's name changes too.

mod after;
mod at;
mod bench_cores;
mod bench_nts;
mod bench_relay;
mod campaign;
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
mod live;
mod load;
mod nts_ke;
mod numeric_values;
mod path_stall;
mod path_tcp;
mod path_udp;
mod progress;
mod query;
mod relay_tree;
mod run_list;
mod sampler;
mod series;

pub use after::{
    AFTER_SCHEMA, AfterDependencyKind, AfterDependencyResult, AfterOutcome, AfterResult,
};
pub use at::{AT_SCHEMA, AtOutcome, AtProgramResult, AtResult, AtScheduling, AtTimescale};
pub use bench_cores::{
    BENCH_CORES_SCHEMA, BenchCoresResult, CaptureCheck, CoreCountResult, CoresRateResult,
    CoresRepetition, ReplyRateSpread,
};
pub use bench_nts::{BENCH_NTS_SCHEMA, BenchNtsResult, NtsMixCapacity};
pub use bench_relay::{
    BENCH_RELAY_SCHEMA, BenchRelayResult, FLAT_RATIO_MAX, NoRelayBaseline,
    RelayConfigurationResult, RelayEngineKind, RelayHalfRateTrial, RelayRepetition, RelayScaling,
};
pub use campaign::{
    CAMPAIGN_SCHEMA, CampaignCapacity, CampaignExclusions, CampaignInstanceOutcome,
    CampaignInstanceResult, CampaignNodeTaskResult, CampaignPathPairRow, CampaignPathRow,
    CampaignPlan, CampaignRelayChildCounts, CampaignRelayCounts, CampaignResult,
    CampaignRoleResult, CampaignTaskResult, CampaignTrial, InstanceClockOffset, LimitingRate,
    LimitingSide, MergedDistribution, MergedResults, StartAccuracy, UnusableAgent,
};
pub use clock::{
    CLOCK_SCHEMA, ClockErrorRange, ClockSimulateResult, DisciplineMethod, DisciplineResult,
    OscillatorParameters, PulseOutageResult, PulseOutcomeCounts, SimulatedPulseConditions,
};
pub use clock_compare::{
    CLOCK_COMPARE_SCHEMA, ClockCompareResult, ClockSample, ClockStep, ComparedClock,
    ComparedClockKind,
};
pub use clock_log::{
    CLOCK_LOG_LINE_MAX, CLOCK_LOG_SCHEMA, ClockLogLine, ClockLogPoint, ClockLogReader,
    ClockLogResult, ClockLogStateChange, LoggedClock,
};
pub use compare::{
    COMPARE_SCHEMA, CompareVerdict, ComparedCondition, ComparedMetric, ComparedMetricKind,
    ComparedRun, RunsCompareResult,
};
pub use cycle::{
    CYCLE_SCHEMA, CycleClockOffset, CycleConfigurationResult, CycleMeasurementCost,
    CycleNodeResult, CycleResult, CycleSeriesPoint, CycleSharedTaskResult, CycleSpeedup,
    CycleSuperstepTimes, CycleTaskResult, ParallelOverhead, PollingServerResult,
    ProgramStateResult, ReleaseSignal, ReleaseSignalCounts, TaskSchedulingOutcome,
    TaskSchedulingPolicy,
};
pub use cycle_predict::{
    CYCLE_PREDICT_SCHEMA, CyclePredictBound, CyclePredictCost, CyclePredictCostKind,
    CyclePredictMethod, CyclePredictPercentile, CyclePredictResult, CyclePredictTaskMeasurement,
    CyclePredictTaskResult, CyclePredictTerm, CyclePredictTermKind, CyclePredictVerdict,
};
pub use cycle_test::{
    CYCLE_TEST_SCHEMA, CycleTestApplication, CycleTestDetectionKind, CycleTestFaultKind,
    CycleTestFaultResult, CycleTestFirstDetection, CycleTestGrade, CycleTestNodeResult,
    CycleTestResult, CycleTestRunResult, CycleTestSearchResult, CycleTestStageTimes,
    CycleTestStateResult, CycleTestTrial, DetectionCount, DetectionCountByNode, ScorecardCriterion,
    ScorecardRow, SimulatedSourceResult,
};
pub use demo::{DEMO_SCHEMA, DemoCandidateResult, DemoResult};
pub use distribution::{
    Distribution, DistributionMergeError, SignedDistribution, TimestampOffsetMethod,
};
pub use finding::{Finding, FindingCode, LimitBoundError, LimitResult, LimitUnit, Severity};
pub use horolog_stats::ExactSummary;
pub use host::{Host, rfc3339_micros, rfc3339_now};
pub use host_all::{
    HOST_ALL_SCHEMA, HostAllResult, HostMeasurementKind, HostMeasurementOutcome,
    HostMeasurementState, HostVerdict, WorstFinding,
};
pub use host_clock::{
    ClockFacts, ClocksourceFacts, CoreMonotonicity, HOST_CLOCK_SCHEMA, HostClockResult, IdleState,
    KernelDiscipline, PhcFacts, RtcFacts, TickFacts, TickMode, TickRateSource, WakeupFacts,
};
pub use host_conditions::{HostConditions, SchedulingPolicy, ThreadScheduling};
pub use host_delay::{
    DelayClaimVerdict, DelayMeasurement, DelaySetting, HOST_DELAY_SCHEMA, HostDelayResult,
    InterruptedDelay, InterruptedSleepStrategy, TestedDelayClaim, TimerSlackSetting, WaitFunction,
};
pub use host_interrupt::{
    HOST_INTERRUPT_SCHEMA, HostInterruptResult, OsNoise, OsNoiseGap, OsNoiseGapSummary,
    TimerHandlerKind, TimerHandlerLatency, TimerHandlerRepetition,
};
pub use host_nic::{
    HOST_NIC_SCHEMA, HostNicResult, NicCoalescing, NicDrops, NicInterrupt, NicOffload, NicQueues,
    NicRecommendation, NicRings, NicRssTable, NicTimestamps, NicUse, NicXdpFacts, NicXdpFeature,
    NicXdpMode, UnavailableNicFact,
};
pub use host_switch::{
    ContextSwitchPeerKind, ContextSwitchPlacement, HOST_SWITCH_SCHEMA, HandoverMechanism,
    HostSwitchResult, PingPongCost, PingPongRepetition, YieldSwitchCost, YieldSwitchRepetition,
};
pub use host_timer::{
    CoreWakeupLatency, HOST_TIMER_SCHEMA, HostTimerResult, LatencyAboveThreshold,
    TimerIntervalMaximum, TimerMeasurementCost,
};
pub use invalid_reason::InvalidReplyReason;
pub use live::{
    LIVE_SCHEMA, LiveCounts, LivePartSummary, LiveRun, LiveRunStatus, PartPlan, PartProgress,
    RecentItems, RequestValues, RunObserver, SNAPSHOTS_MAX, Snapshot,
};
pub use load::{
    CapacitySearchGoal, CapacitySearchResult, ClientFairness, CompliantClientsResult, LOAD_SCHEMA,
    LoadEngineKind, LoadResult, LoadTarget, LossLocation, MixRequestKindResult, ReplyKindCounts,
    RequestClassCounts, RequestMode, RequestSpacing, SearchEndReason, Trial,
};
pub use nts_ke::{NtsKeFailureReason, NtsKeLoadResult, NtsKeTrial};
pub use numeric_values::numeric_values;
pub use path_stall::{
    AckCounts, AckDelaySummary, CONNECTIONS_MISSED_MAX, CongestionWindowSample,
    HeldDataSampleCounts, PATH_STALL_SCHEMA, PathStallResult, StallEvidenceKind,
    StallKernelSettings, StallMeasurement, StallMechanism, StallSocketOption, TestedStallClaim,
    WatchedConnection, WatchedTraffic, WritePattern,
};
pub use path_tcp::{
    PATH_TCP_SCHEMA, PathEndFacts, PathTcpResult, TcpBandwidthRow, TcpDirection, TcpInfoSummary,
    TcpLatencyRow, TcpSettings, TcpTarget, ZeroCopyCounts,
};
pub use path_udp::{
    PATH_UDP_SCHEMA, PathDirectionCounts, PathHostLosses, PathLoad, PathLossesByLocation,
    PathMeasurementCost, PathProtocol, PathRequestCounts, PathSendMode, PathTarget, PathUdpResult,
    PathUdpRow, UdpRowEndReason,
};
pub use progress::{Progress, ProgressPublisher, ProgressSlots, SNAPSHOT_INTERVAL, lock_slot};
pub use query::{
    AllanDeviation, BestSample, ClockDrift, EarlyQueryEnd, ExchangeSample, LeapState,
    NtsUseSummary, PhcTimestampSource, QUERY_SCHEMA, QueriedServerState, QueryCounts,
    QueryEndReason, QueryResult, QueryServerResult, ServerOffsetDifference, TimestampCounts,
    TimestampSource,
};
pub use relay_tree::{
    AlternativeTree, AlternativeTreeKind, NodeProcessingTime, RELAY_TREE_SCHEMA,
    RegularTreeAssumption, RegularTreeGain, RelayTreeCalibration, RelayTreeEngineDelays,
    RelayTreeGain, RelayTreeMeasurement, RelayTreeMeasurementMethod, RelayTreeNode,
    RelayTreeNodeGain, RelayTreeResult,
};
pub use run_list::{RUN_LIST_SCHEMA, StoredRun, StoredRunList};
pub use sampler::{LiveSampler, SnapshotTimer};
pub use series::{LoadSeriesPoint, LoadTimeSeries, Outage, OverloadResult, Percentiles};

/// Environment variable with the path of the result store, if no flag gives one.
pub const STORE_VARIABLE: &str = "HOROLOG_STORE";
/// Value of [`STORE_VARIABLE`] that disables storing.
pub const STORE_NONE: &str = "none";

/// Passes all kinds of results to the macro `$with`: for each the name of its sample, its type and
/// the constant with its schema. Loads of NTS-KE exchanges share their schema with other loads.
#[macro_export]
macro_rules! result_kinds {
    ($with:ident) => {
        $with! {
            after AfterResult AFTER_SCHEMA,
            at AtResult AT_SCHEMA,
            bench_cores BenchCoresResult BENCH_CORES_SCHEMA,
            bench_nts BenchNtsResult BENCH_NTS_SCHEMA,
            bench_relay BenchRelayResult BENCH_RELAY_SCHEMA,
            campaign CampaignResult CAMPAIGN_SCHEMA,
            clock ClockSimulateResult CLOCK_SCHEMA,
            clock_compare ClockCompareResult CLOCK_COMPARE_SCHEMA,
            clock_log ClockLogResult CLOCK_LOG_SCHEMA,
            compare RunsCompareResult COMPARE_SCHEMA,
            cycle CycleResult CYCLE_SCHEMA,
            cycle_predict CyclePredictResult CYCLE_PREDICT_SCHEMA,
            cycle_test CycleTestResult CYCLE_TEST_SCHEMA,
            demo DemoResult DEMO_SCHEMA,
            host_all HostAllResult HOST_ALL_SCHEMA,
            host_clock HostClockResult HOST_CLOCK_SCHEMA,
            host_delay HostDelayResult HOST_DELAY_SCHEMA,
            host_interrupt HostInterruptResult HOST_INTERRUPT_SCHEMA,
            host_nic HostNicResult HOST_NIC_SCHEMA,
            host_switch HostSwitchResult HOST_SWITCH_SCHEMA,
            host_timer HostTimerResult HOST_TIMER_SCHEMA,
            load LoadResult LOAD_SCHEMA,
            path_stall PathStallResult PATH_STALL_SCHEMA,
            path_tcp PathTcpResult PATH_TCP_SCHEMA,
            path_udp PathUdpResult PATH_UDP_SCHEMA,
            query QueryResult QUERY_SCHEMA,
            relay_tree RelayTreeResult RELAY_TREE_SCHEMA,
        }
    };
}
