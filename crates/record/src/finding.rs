//! A doubt about a result, as data. A measurement that has one says so here, so that whoever reads
//! the file later sees it too; a line in a log would be gone.

use serde::{Deserialize, Serialize};

/// One doubt about a result, or a fact without which its numbers would be misread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What kind of doubt.
    pub code: Code,
    /// How much it matters.
    pub severity: Severity,
    /// What was seen, with its figures.
    pub message: String,
    /// What to do about it.
    pub advice: String,
    /// The index of the trial that it is about, where it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<usize>,
}

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Worth knowing; the numbers stand.
    Note,
    /// The numbers stand only with this beside them.
    Warning,
    /// The number does not say what it seems to say.
    Error,
}

/// The kinds of doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Code {
    /// The generator sent less than was planned.
    GeneratorBehind,
    /// The generator's limit was met before the server's.
    GeneratorLimit,
    /// Requests were sent so late that latency, counted from the intended instant, includes it.
    RequestsLate,
    /// The generator's own receive ring or socket overflowed: some losses are its own.
    ReceiveRingOverflow,
    /// Generator and server shared the processors of one machine.
    SharedMachine,
    /// The clock of this machine is not synchronised.
    ClockUnsynchronised,
    /// The server says that it is not synchronised (leap 3 or stratum 16), or a PTP master that its
    /// time can be traced to no primary reference.
    ServerUnsynchronised,
    /// The processor's frequency moved during the run.
    FrequencyMoved,
    /// Not one reply came back.
    NoReplies,
    /// Some replies were invalid.
    InvalidReplies,
    /// Some replies came twice.
    DuplicateReplies,
    /// Losses could not all be assigned to a place.
    LossUnexplained,
    /// Fewer packets than a percentile shown needs.
    FewSamples,
    /// Trials at the same rate disagreed more than the search's width.
    Noisy,
    /// The search ended before it reached the width asked for.
    SearchUnfinished,
    /// The run was ended before it was through.
    Interrupted,
    /// The engine failed in the middle of the run.
    EngineFailed,
    /// A better engine exists and was not to be had.
    EngineFallback,
    /// Interleaved mode was asked for and many replies were in basic mode.
    BasicReplies,
    /// Of what was sent and received not everything is in the capture.
    CaptureIncomplete,
    /// Counters of the server's machine could not be read, all or some of them.
    CountersUnread,
    /// The server answered nothing for a while.
    ServerSilent,
    /// The server was not as before after an overload.
    NotRecovered,
    /// Some clients got nothing while others were answered.
    UnevenReplies,
    /// Well-behaved clients were not answered.
    ClientsHurt,
    /// Some NTS key establishments gave no keys.
    EstablishmentsFailed,
    /// What the generator counted and what a capture saw are not the same.
    CountsDisagree,
    /// Replies authenticated by NTS were not opened, for want of the key.
    RepliesUnopened,
    /// Some replies had no receive timestamp to take an offset by.
    RepliesUnstamped,
    /// Offsets were larger than can be told.
    OffsetsTooLarge,
    /// A server demanded by a kiss of death to be asked less often, or not at all.
    KissOfDeath,
    /// Timestamps were taken by a less exact means than was asked for.
    StampsMissing,
    /// Two servers cannot both be right.
    ServersDisagree,
    /// A round trip took less than no time: timestamps are made up, or a clock was set meanwhile.
    NegativeDelay,
    /// A simulated clock was never locked to its pulses.
    NeverLocked,
    /// The system clock was set while clocks were compared with it, or instants told by it.
    ClockStepped,
    /// A clock could not be read, at times or at all.
    ClockUnread,
    /// The kernel does not know how far TAI is ahead of UTC.
    TaiUnknown,
    /// A PTP master granted none of the unicast messages that it was asked for.
    Denied,
    /// The far end of a path stopped answering.
    FarEndVanished,
    /// The far end of a path has carried what it carries for anybody.
    FarEndLimit,
    /// Datagrams were lost on a path.
    PathLoss,
    /// Datagrams did not come in their order on a path.
    PathReordered,
    /// Datagrams are longer than the path's MTU and go in fragments.
    Fragmented,
    /// The clocks of both ends are not close enough to tell one way from the other.
    OneWayUnknown,
    /// The path changed the DSCP of datagrams.
    DscpChanged,
    /// The load on the path was not what was asked for.
    LoadMissed,
    /// The kernel copied what was to be sent without a copy.
    ZeroCopyCopied,
    /// Exchanges waited for a timer, not for the path or the far end.
    Stalled,
    /// A clock went back from one core to another.
    ClockBackwards,
    /// Each reading of a clock is a system call.
    ClockSlow,
    /// Idle cores take long to wake.
    DeepIdle,
    /// Timers may be later than usual to join others.
    SlackWide,
    /// Timers expire at ticks alone.
    CoarseTimers,
    /// Waits ended before their time.
    WaitsEarly,
    /// A function to wait by is not to be had here.
    FunctionUnavailable,
    /// An interface dropped received packets.
    NicDrops,
    /// An interface cannot pass packets.
    NicDown,
    /// Real-time scheduling was asked for and refused.
    RealTimeRefused,
    /// Memory was not locked, so that a page that is missing may be in a latency.
    MemoryUnlocked,
    /// Idle states of the processors were not held off.
    IdleStatesFree,
    /// Periods were over before their thread came to wait for them.
    PeriodsMissed,
    /// A latency was larger than it might be, and ended the run.
    LatencyAboveBreak,
    /// A figure came out negative, so it says nothing.
    NegativeFigure,
    /// Fewer switches came than the method makes.
    SwitchesMissing,
    /// A kind of handler is not to be had here.
    HandlerUnavailable,
    /// A core was taken from a thread that wanted all of it.
    TimeStolen,
    /// Threads wake up too late for what is to be measured.
    WakeUpsLate,
    /// A part of a measurement gave no figures.
    PartUnmeasured,
    /// Periodic work was not done by its deadlines.
    DeadlinesMissed,
    /// Periods were run and are not in the figures.
    PeriodsUncounted,
    /// Periodic work failed.
    TaskFailed,
    /// A node ended, or had to be ended, before it was through.
    NodeLost,
    /// The other nodes wait for one.
    NodeAwaited,
    /// Messages of other nodes did not come in time.
    MessagesMissing,
    /// Barriers were given up because not all nodes came there.
    BarriersBroken,
    /// Packets that were to release periods did not come.
    SignalLost,
    /// Periods that were planned were not run.
    PeriodsNotRun,
    /// A task is not through by its deadline at worst.
    TaskUnschedulable,
    /// Tasks want more of a core than there is.
    CoreOverloaded,
    /// A bound holds only as long as something that was not measured is so.
    BoundConditional,
    /// Something was measured that is longer than its bound.
    BoundExceeded,
    /// A cost that a prediction needs is not known.
    CostAbsent,
    /// What was measured is of other tasks than what is predicted.
    TasksDiffer,
    /// A cost was measured on another machine.
    CostForeign,
    /// There are doubts about a cost.
    CostDoubtful,
    /// The kernel takes the core away from real-time threads that want more of it than it allows.
    RealTimeThrottled,
    /// Nothing was heard of an agent any more.
    AgentLost,
    /// Results could not all be put together.
    Unmerged,
    /// Processes that were to start at one instant started far apart.
    StartsApart,
    /// Processes were told different instants to start at.
    InstantsDiffer,
    /// What agents were to be told by and to tell by was gone for too long.
    BrokerGone,
    /// A fault that was to be injected was not.
    FaultNotInjected,
    /// A fault was injected and nobody noticed it.
    FaultUnnoticed,
    /// After a fault all was never well again.
    FaultNotRecovered,
}
