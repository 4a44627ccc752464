//! Findings: typed statements that qualify a result. They are stored in the result, so that they
//! are not lost as a log line would be.

use horolog_time::text::{self, QuantityError, Rate};
use serde::{Deserialize, Serialize};

/// Statement that qualifies a result, or a fact without which its numbers would be misread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Kind of finding.
    pub code: FindingCode,
    /// Severity of the finding.
    pub severity: Severity,
    /// Observation, with its numbers.
    pub message: String,
    /// Recommended action.
    pub advice: String,
    /// Index of the trial concerned; absent if it concerns no single trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<usize>,
}

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Information; the numbers are valid.
    Note,
    /// Restriction: the numbers are valid only together with the finding.
    Warning,
    /// Invalidation: a number does not mean what it appears to mean.
    Error,
}

/// Kinds of findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingCode {
    /// The generator sent less than intended.
    GeneratorBehind,
    /// The generator reached its limit before the server did.
    GeneratorLimit,
    /// Requests were sent so late that latency, counted from the intended send time, includes the
    /// lateness; or datagrams sent at a constant rate queued on a path.
    RequestsLate,
    /// The generator's receive ring or socket overflowed, so that it lost replies itself.
    ReceiveRingOverflow,
    /// Both ends of a measurement, such as generator and server, shared the CPUs of one host.
    SharedMachine,
    /// The clock of this host is not synchronised.
    ClockUnsynchronised,
    /// The server reports that it is not synchronised (leap 3 or stratum 16); or a PTP master
    /// reports that its time is not traceable to a primary reference.
    ServerUnsynchronised,
    /// The CPU frequency changed during the run.
    CpuFrequencyChanged,
    /// No reply arrived.
    NoReplies,
    /// Some replies were invalid.
    InvalidReplies,
    /// Some replies arrived twice.
    DuplicateReplies,
    /// Some losses could not be assigned to a loss location.
    LossUnattributed,
    /// There are fewer packets than a displayed percentile requires.
    FewSamples,
    /// Trials at the same rate differed by more than the search's width.
    TrialsInconsistent,
    /// The search ended before its bounds were as close as requested.
    SearchUnfinished,
    /// The run was ended before completion.
    Interrupted,
    /// The engine failed during the run.
    EngineFailed,
    /// A better engine exists but was not available.
    EngineFallback,
    /// Interleaved mode was requested, but many replies were in basic mode.
    InterleavedNotUsed,
    /// The capture does not contain all packets sent and received.
    CaptureIncomplete,
    /// Some or all counters of the server's host could not be read.
    CountersUnavailable,
    /// The server had an outage.
    ServerOutage,
    /// The server did not recover after an overload.
    NotRecovered,
    /// Some clients received no replies while others did.
    UnfairReplies,
    /// Requests of compliant clients were lost.
    CompliantClientLoss,
    /// Some NTS-KE exchanges yielded no keys.
    NtsKeFailed,
    /// A server rejected its own NTS cookies or stopped answering, and new keys were obtained by
    /// NTS-KE.
    KeysRenewed,
    /// NTS keys for one algorithm did not fit the server's, and keys for another were obtained.
    AlgorithmAbandoned,
    /// NTS-KE names another NTP server than the one under load.
    OtherNtpServer,
    /// Counts of the generator differ from those of a packet capture.
    CountsDisagree,
    /// Replies authenticated by NTS were not decrypted, for lack of the key.
    RepliesNotDecrypted,
    /// Some replies had no receive timestamp from which to compute an offset.
    RepliesWithoutTimestamp,
    /// Offsets exceeded the measurable range.
    OffsetsTooLarge,
    /// A server sent kisses of death, such as the request that clients send less or stop.
    KissOfDeath,
    /// Timestamps came from a less accurate source than requested.
    TimestampsMissing,
    /// Two servers contradict each other: at least one is wrong.
    ServersDisagree,
    /// A round-trip delay was negative: timestamps are wrong, or a clock was stepped meanwhile.
    NegativeDelay,
    /// A simulated clock was never locked to its pulses.
    NeverLocked,
    /// The system clock was stepped during a comparison with other clocks, or while it determined
    /// the instants of a run.
    ClockStepped,
    /// Some or all readings of a clock failed.
    ClockUnreadable,
    /// The kernel does not know the offset between TAI and UTC.
    TaiUnknown,
    /// A PTP master granted none of the requested unicast messages.
    UnicastDenied,
    /// The far end of a path stopped answering.
    FarEndUnreachable,
    /// The far end of a path reached its limit of data for a client.
    FarEndLimit,
    /// Datagrams were lost on a path.
    PathLoss,
    /// Datagrams arrived out of order on a path.
    PathReordered,
    /// Datagrams exceed the path's MTU and are fragmented.
    Fragmented,
    /// The clocks of both ends are not close enough to separate the two directions.
    OneWayUnavailable,
    /// The path changed the DSCP of datagrams.
    DscpChanged,
    /// The load on the path differed from the intended load.
    PathLoadNotReached,
    /// The kernel copied data that was to be sent without a copy.
    ZeroCopyFallback,
    /// Exchanges waited for a timer instead of the path or the far end.
    Stalled,
    /// A clock went backwards from one core to another.
    ClockBackwards,
    /// Each reading of a clock costs a system call.
    ClockSlow,
    /// Idle states of the cores have a long exit latency.
    DeepIdle,
    /// The timer slack is larger than usual, so that timers may expire later.
    TimerSlackLarge,
    /// High-resolution timers are not active: timers expire only at ticks.
    CoarseTimers,
    /// Waits ended too early.
    WaitsReturnedEarly,
    /// A wait function is not available here.
    FunctionUnavailable,
    /// An interface dropped received packets.
    NicDrops,
    /// An interface is not operational.
    NicDown,
    /// Real-time scheduling was requested and refused.
    RealTimeRefused,
    /// Memory was not locked, so a latency may include a page fault.
    MemoryNotLocked,
    /// Idle states of the CPUs were not disabled.
    IdleStatesNotHeld,
    /// The wake-up times of some periods had passed before their thread began to wait for them.
    PeriodsMissed,
    /// A latency exceeded the limit that ends the run.
    LatencyAboveBreak,
    /// A value is negative and therefore meaningless.
    NegativeFigure,
    /// There were fewer switches than the method requires.
    SwitchesMissing,
    /// A kind of handler is not available here.
    HandlerUnavailable,
    /// OS noise: the system took a core from a thread that needed all of it.
    OsNoise,
    /// Wake-up latency is too high for the measurement.
    WakeupLatencyHigh,
    /// A part of a measurement yielded no values.
    PartUnmeasured,
    /// Periodic work missed its deadlines.
    DeadlinesMissed,
    /// Periods ran but are missing from the values.
    PeriodsNotRecorded,
    /// Periodic work failed.
    TaskFailed,
    /// A node ended, or had to be terminated, before completion.
    NodeLost,
    /// One node is a straggler, for which the others wait.
    StragglerNode,
    /// Messages of other nodes did not arrive in time.
    MessagesMissing,
    /// Barriers were abandoned because not all nodes reached them.
    BarriersBroken,
    /// Packets that release periods did not arrive.
    ReleaseSignalLost,
    /// Planned periods were not run.
    PeriodsNotRun,
    /// A task can miss its deadline in the worst case.
    TaskUnschedulable,
    /// The utilisation of a core by its tasks exceeds 100%.
    CoreOverloaded,
    /// A bound holds only under a condition that was not measured.
    BoundConditional,
    /// A measured value exceeds its bound.
    BoundExceeded,
    /// A cost required by a prediction is unknown.
    CostMissing,
    /// The measured tasks differ from the predicted ones.
    TaskSetMismatch,
    /// A cost was measured on another host.
    CostFromOtherMachine,
    /// A cost is uncertain.
    CostUncertain,
    /// Real-time throttling: the kernel takes the core from real-time threads that exceed their
    /// share.
    RealTimeThrottled,
    /// Contact with an agent was lost.
    AgentLost,
    /// Some results could not be merged.
    MergeIncomplete,
    /// Processes with the same start time did not start simultaneously.
    StartSpreadLarge,
    /// Processes had different start times.
    StartTimesDiffer,
    /// The broker was unavailable for too long.
    BrokerUnreachable,
    /// A planned fault was not injected.
    FaultNotInjected,
    /// An injected fault was not detected.
    FaultNotDetected,
    /// There was no recovery after a fault.
    FaultNotRecovered,
}

/// Outcome of a limit, with the value closest to its bound or farthest beyond it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitResult {
    /// Expression as on the command line; the limit fails if it is true.
    pub expression: String,
    /// Unit of `bound` and `value`.
    pub unit: LimitUnit,
    /// Bound in the expression.
    pub bound: f64,
    /// Worst measured value; absent if one is missing, in which case the limit fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// Index of the trial with that value; absent if it belongs to no trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<usize>,
    /// Origin of the value if it belongs to no trial: a core; a function with its delay and
    /// setting; a row with its length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// True if the limit failed.
    pub failed: bool,
}

/// Units of a limit's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LimitUnit {
    /// Ratio from 0 to 1.
    Ratio,
    /// Nanoseconds.
    Ns,
    /// Requests per second.
    PerSecond,
    /// Bytes per second.
    BytesPerSecond,
    /// Dimensionless factor.
    Factor,
}

/// Error of a limit's bound.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("invalid bound '{}' for {metric}: {reason}", bound.escape_debug())]
pub struct LimitBoundError {
    /// Text of the bound.
    pub bound: String,
    /// Name of the limited metric.
    pub metric: String,
    /// Notation to use instead.
    pub reason: QuantityError,
}

impl LimitUnit {
    /// Parses a bound of a metric in this unit: a ratio from 0 to 1, ns, a rate or a factor.
    pub fn parse_bound(self, metric: &str, bound: &str) -> Result<f64, LimitBoundError> {
        let parsed = match self {
            Self::Ratio => text::ratio(bound),
            Self::Ns => text::ns_with_unit(bound),
            Self::PerSecond | Self::BytesPerSecond => bound.parse().map(Rate::per_second),
            Self::Factor => text::factor(bound),
        };
        parsed.map_err(|reason| LimitBoundError {
            bound: bound.to_owned(),
            metric: metric.to_owned(),
            reason,
        })
    }
}
