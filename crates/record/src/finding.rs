//! Findings: typed statements that qualify a result. They are part of the result, so that later
//! readers see them too; a log line would be lost.

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
    /// Index of the trial concerned, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<usize>,
}

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Information; the numbers are valid.
    Note,
    /// Restriction; the numbers are valid only together with it.
    Warning,
    /// Invalidation; the number does not mean what it appears to mean.
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
    /// lateness.
    RequestsLate,
    /// The generator's own receive ring or socket overflowed: some losses are its own.
    ReceiveRingOverflow,
    /// Generator and server shared the CPUs of one host.
    SharedMachine,
    /// The clock of this host is not synchronised.
    ClockUnsynchronised,
    /// The server reports that it is not synchronised (leap 3 or stratum 16), or a PTP master that
    /// its time is not traceable to a primary reference.
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
    /// The search ended before it reached the requested width.
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
    /// Compliant clients were not answered.
    CompliantClientLoss,
    /// Some NTS-KE exchanges yielded no keys.
    NtsKeFailed,
    /// A server rejected the NTS cookies it had issued, or stopped answering, and new keys were
    /// obtained by NTS-KE.
    KeysRenewed,
    /// NTS keys for one algorithm did not fit the server's, and keys for another were obtained.
    AlgorithmAbandoned,
    /// NTS-KE names another NTP server than the one under load.
    OtherNtpServer,
    /// The generator's counts differ from those of a capture.
    CountsDisagree,
    /// Replies authenticated by NTS were not decrypted, for lack of the key.
    RepliesNotDecrypted,
    /// Some replies had no receive timestamp from which to compute an offset.
    RepliesWithoutTimestamp,
    /// Offsets exceeded the measurable range.
    OffsetsTooLarge,
    /// A server demanded fewer requests or none by a kiss of death.
    KissOfDeath,
    /// Timestamps came from a less accurate source than requested.
    TimestampsMissing,
    /// Two servers cannot both be correct.
    ServersDisagree,
    /// A round trip was negative: timestamps are invented, or a clock was stepped during it.
    NegativeDelay,
    /// A simulated clock was never locked to its pulses.
    NeverLocked,
    /// The system clock was stepped while it was compared with others or defined instants.
    ClockStepped,
    /// A clock could not be read, sometimes or at all.
    ClockUnreadable,
    /// The kernel does not know the offset between TAI and UTC.
    TaiUnknown,
    /// A PTP master granted none of the requested unicast messages.
    UnicastDenied,
    /// The far end of a path stopped answering.
    FarEndUnreachable,
    /// The far end of a path reached the limit of data that it carries for any client.
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
    /// Idle cores take long to wake.
    DeepIdle,
    /// Timers may be delayed by more than usual to be coalesced with others.
    TimerSlackLarge,
    /// Timers expire only at ticks.
    CoarseTimers,
    /// Waits ended too early.
    WaitsReturnedEarly,
    /// A wait function is not available here.
    FunctionUnavailable,
    /// An interface dropped received packets.
    NicDrops,
    /// An interface cannot pass packets.
    NicDown,
    /// Real-time scheduling was requested and refused.
    RealTimeRefused,
    /// Memory was not locked, so a latency may include a page fault.
    MemoryNotLocked,
    /// Idle states of the CPUs were not disabled.
    IdleStatesNotHeld,
    /// Periods had passed before their thread came to wait for them.
    PeriodsMissed,
    /// A latency exceeded its limit and ended the run.
    LatencyAboveBreak,
    /// A value is negative and therefore meaningless.
    NegativeFigure,
    /// There were fewer switches than the method requires.
    SwitchesMissing,
    /// A kind of handler is not available here.
    HandlerUnavailable,
    /// A core was taken from a thread that needed all of it (OS noise).
    OsNoise,
    /// Threads wake up too late for the measurement.
    WakeupLatencyHigh,
    /// A part of a measurement yielded no values.
    PartUnmeasured,
    /// Periodic work missed its deadlines.
    DeadlinesMissed,
    /// Periods were run but are not included in the values.
    PeriodsNotRecorded,
    /// Periodic work failed.
    TaskFailed,
    /// A node ended, or had to be terminated, before completion.
    NodeLost,
    /// One node is a straggler: the others wait for it.
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
    /// Tasks require more of a core than there is.
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
    /// The kernel takes the core away from real-time threads that require more of it than it
    /// allows.
    RealTimeThrottled,
    /// Contact with an agent was lost.
    AgentLost,
    /// Some results could not be merged.
    MergeIncomplete,
    /// Processes with one start time started far apart.
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
