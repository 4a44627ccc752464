//! What is chosen from a list stands in a result by name. The tables here are those names, and the
//! strategies choose from them.

use std::fmt::Debug;

use horolog_record::{
    CampaignEnd, CampaignLimitOf, ClaimVerdict, ClockMethodKind, Code, CompareVerdict,
    ComparedFigureKind, ComparedKind, CycleSignal, DelayKind, DelaySlack, Engine, HandlerKind,
    HostPart, HostPartState, HostVerdict, HzSource, InvalidReason, LeapState, LimitUnit, Mechanism,
    Mode, NicPurpose, NicXdpAbility, NicXdpMode, PathMode, PathProtocol, Place, QueryEndReason,
    RelayEngine, RelayTreeAssumption, RelayTreeShapeKind, Resumption, RowEnd, SchedulingPolicy,
    SearchEnd, SearchKind, Severity, SocketOption, Spacing, StallEvidence, StallPattern, StampKind,
    SwitchPartner, SwitchPlacement, SwitchWay, TaskPolicy, TcpDirection, TickMode,
};
use serde::Serialize;

/// Each choice with its name in a file.
pub(crate) type Choices<T, const N: usize> = [(T, &'static str); N];

pub(crate) const MODES: Choices<Mode, 9> = [
    (Mode::NtpBasic, "ntp-basic"),
    (Mode::NtpInterleaved, "ntp-interleaved"),
    (Mode::NtpNts, "ntp-nts"),
    (Mode::NtsKe, "nts-ke"),
    (Mode::PtpDelay, "ptp-delay"),
    (Mode::PtpNsm, "ptp-nsm"),
    (Mode::PtpUnicast, "ptp-unicast"),
    (Mode::Echo, "echo"),
    (Mode::Mix, "mix"),
];

pub(crate) const CAMPAIGN_LIMITS: Choices<CampaignLimitOf, 2> =
    [(CampaignLimitOf::Servers, "servers"), (CampaignLimitOf::Generators, "generators")];

pub(crate) const COMPARED_FIGURES: Choices<ComparedFigureKind, 7> = [
    (ComparedFigureKind::P50, "p50"),
    (ComparedFigureKind::P99, "p99"),
    (ComparedFigureKind::P999, "p99.9"),
    (ComparedFigureKind::Loss, "loss"),
    (ComparedFigureKind::Rate, "rate"),
    (ComparedFigureKind::Time, "time"),
    (ComparedFigureKind::Offset, "offset"),
];

pub(crate) const COMPARE_VERDICTS: Choices<CompareVerdict, 5> = [
    (CompareVerdict::Same, "same"),
    (CompareVerdict::Better, "better"),
    (CompareVerdict::Worse, "worse"),
    (CompareVerdict::Unclear, "unclear"),
    (CompareVerdict::NotEnough, "not-enough"),
];

pub(crate) const CAMPAIGN_ENDS: Choices<CampaignEnd, 8> = [
    (CampaignEnd::Done, "done"),
    (CampaignEnd::Failed, "failed"),
    (CampaignEnd::Signalled, "signalled"),
    (CampaignEnd::TimedOut, "timed-out"),
    (CampaignEnd::Abandoned, "abandoned"),
    (CampaignEnd::Refused, "refused"),
    (CampaignEnd::Interrupted, "interrupted"),
    (CampaignEnd::Lost, "lost"),
];

pub(crate) const ENGINES: Choices<Engine, 3> =
    [(Engine::Udp, "udp"), (Engine::Packet, "packet"), (Engine::Xdp, "xdp")];

pub(crate) const SPACINGS: Choices<Spacing, 2> =
    [(Spacing::Constant, "constant"), (Spacing::Exponential, "exponential")];

pub(crate) const REASONS: Choices<InvalidReason, 16> = [
    (InvalidReason::Length, "length"),
    (InvalidReason::Mode, "mode"),
    (InvalidReason::Version, "version"),
    (InvalidReason::Origin, "origin"),
    (InvalidReason::Client, "client"),
    (InvalidReason::Stratum, "stratum"),
    (InvalidReason::Leap, "leap"),
    (InvalidReason::Timestamp, "timestamp"),
    (InvalidReason::Domain, "domain"),
    (InvalidReason::Flags, "flags"),
    (InvalidReason::Sequence, "sequence"),
    (InvalidReason::Source, "source"),
    (InvalidReason::Monitor, "monitor"),
    (InvalidReason::Contract, "contract"),
    (InvalidReason::Nts, "nts"),
    (InvalidReason::Mac, "mac"),
];

pub(crate) const PLACES: Choices<Place, 8> = [
    (Place::Generator, "generator"),
    (Place::OwnRing, "own_ring"),
    (Place::Link, "link"),
    (Place::Interface, "interface"),
    (Place::Socket, "socket"),
    (Place::Server, "server"),
    (Place::Late, "late"),
    (Place::Unknown, "unknown"),
];

pub(crate) const SEARCH_KINDS: Choices<SearchKind, 2> =
    [(SearchKind::Ndr, "ndr"), (SearchKind::Pdr, "pdr")];

pub(crate) const SEARCH_ENDS: Choices<SearchEnd, 5> = [
    (SearchEnd::Converged, "converged"),
    (SearchEnd::CappedAtMax, "capped-at-max"),
    (SearchEnd::BelowMin, "below-min"),
    (SearchEnd::GeneratorLimit, "generator-limit"),
    (SearchEnd::BudgetSpent, "budget-spent"),
];

pub(crate) const RELAY_ENGINES: Choices<RelayEngine, 3> =
    [(RelayEngine::Send, "send"), (RelayEngine::Sendmmsg, "sendmmsg"), (RelayEngine::Xdp, "xdp")];

pub(crate) const CLOCK_METHODS: Choices<ClockMethodKind, 2> =
    [(ClockMethodKind::Servo, "servo"), (ClockMethodKind::SetAtPulse, "set-at-pulse")];

pub(crate) const COMPARED_KINDS: Choices<ComparedKind, 3> =
    [(ComparedKind::Kernel, "kernel"), (ComparedKind::Phc, "phc"), (ComparedKind::Pps, "pps")];

pub(crate) const LIMIT_UNITS: Choices<LimitUnit, 5> = [
    (LimitUnit::Ratio, "ratio"),
    (LimitUnit::Ns, "ns"),
    (LimitUnit::PerSecond, "per-second"),
    (LimitUnit::BytesPerSecond, "bytes-per-second"),
    (LimitUnit::Factor, "factor"),
];

pub(crate) const SEVERITIES: Choices<Severity, 3> =
    [(Severity::Note, "note"), (Severity::Warning, "warning"), (Severity::Error, "error")];

pub(crate) const CODES: Choices<Code, 95> = [
    (Code::GeneratorBehind, "generator-behind"),
    (Code::GeneratorLimit, "generator-limit"),
    (Code::RequestsLate, "requests-late"),
    (Code::ReceiveRingOverflow, "receive-ring-overflow"),
    (Code::SharedMachine, "shared-machine"),
    (Code::ClockUnsynchronised, "clock-unsynchronised"),
    (Code::ServerUnsynchronised, "server-unsynchronised"),
    (Code::FrequencyMoved, "frequency-moved"),
    (Code::NoReplies, "no-replies"),
    (Code::InvalidReplies, "invalid-replies"),
    (Code::DuplicateReplies, "duplicate-replies"),
    (Code::LossUnexplained, "loss-unexplained"),
    (Code::FewSamples, "few-samples"),
    (Code::Noisy, "noisy"),
    (Code::SearchUnfinished, "search-unfinished"),
    (Code::Interrupted, "interrupted"),
    (Code::EngineFailed, "engine-failed"),
    (Code::EngineFallback, "engine-fallback"),
    (Code::BasicReplies, "basic-replies"),
    (Code::CaptureIncomplete, "capture-incomplete"),
    (Code::CountersUnread, "counters-unread"),
    (Code::ServerSilent, "server-silent"),
    (Code::NotRecovered, "not-recovered"),
    (Code::UnevenReplies, "uneven-replies"),
    (Code::ClientsHurt, "clients-hurt"),
    (Code::EstablishmentsFailed, "establishments-failed"),
    (Code::CountsDisagree, "counts-disagree"),
    (Code::RepliesUnopened, "replies-unopened"),
    (Code::RepliesUnstamped, "replies-unstamped"),
    (Code::OffsetsTooLarge, "offsets-too-large"),
    (Code::KissOfDeath, "kiss-of-death"),
    (Code::StampsMissing, "stamps-missing"),
    (Code::ServersDisagree, "servers-disagree"),
    (Code::NegativeDelay, "negative-delay"),
    (Code::NeverLocked, "never-locked"),
    (Code::ClockStepped, "clock-stepped"),
    (Code::ClockUnread, "clock-unread"),
    (Code::TaiUnknown, "tai-unknown"),
    (Code::Denied, "denied"),
    (Code::FarEndVanished, "far-end-vanished"),
    (Code::FarEndLimit, "far-end-limit"),
    (Code::PathLoss, "path-loss"),
    (Code::PathReordered, "path-reordered"),
    (Code::Fragmented, "fragmented"),
    (Code::OneWayUnknown, "one-way-unknown"),
    (Code::DscpChanged, "dscp-changed"),
    (Code::LoadMissed, "load-missed"),
    (Code::ClockBackwards, "clock-backwards"),
    (Code::ClockSlow, "clock-slow"),
    (Code::DeepIdle, "deep-idle"),
    (Code::SlackWide, "slack-wide"),
    (Code::CoarseTimers, "coarse-timers"),
    (Code::WaitsEarly, "waits-early"),
    (Code::FunctionUnavailable, "function-unavailable"),
    (Code::NicDrops, "nic-drops"),
    (Code::NicDown, "nic-down"),
    (Code::RealTimeRefused, "real-time-refused"),
    (Code::MemoryUnlocked, "memory-unlocked"),
    (Code::IdleStatesFree, "idle-states-free"),
    (Code::PeriodsMissed, "periods-missed"),
    (Code::LatencyAboveBreak, "latency-above-break"),
    (Code::NegativeFigure, "negative-figure"),
    (Code::SwitchesMissing, "switches-missing"),
    (Code::HandlerUnavailable, "handler-unavailable"),
    (Code::TimeStolen, "time-stolen"),
    (Code::WakeUpsLate, "wake-ups-late"),
    (Code::PartUnmeasured, "part-unmeasured"),
    (Code::DeadlinesMissed, "deadlines-missed"),
    (Code::PeriodsUncounted, "periods-uncounted"),
    (Code::TaskFailed, "task-failed"),
    (Code::NodeLost, "node-lost"),
    (Code::NodeAwaited, "node-awaited"),
    (Code::MessagesMissing, "messages-missing"),
    (Code::BarriersBroken, "barriers-broken"),
    (Code::SignalLost, "signal-lost"),
    (Code::PeriodsNotRun, "periods-not-run"),
    (Code::TaskUnschedulable, "task-unschedulable"),
    (Code::CoreOverloaded, "core-overloaded"),
    (Code::BoundConditional, "bound-conditional"),
    (Code::BoundExceeded, "bound-exceeded"),
    (Code::CostAbsent, "cost-absent"),
    (Code::TasksDiffer, "tasks-differ"),
    (Code::CostForeign, "cost-foreign"),
    (Code::CostDoubtful, "cost-doubtful"),
    (Code::RealTimeThrottled, "real-time-throttled"),
    (Code::AgentLost, "agent-lost"),
    (Code::Unmerged, "unmerged"),
    (Code::StartsApart, "starts-apart"),
    (Code::InstantsDiffer, "instants-differ"),
    (Code::BrokerGone, "broker-gone"),
    (Code::FaultNotInjected, "fault-not-injected"),
    (Code::FaultUnnoticed, "fault-unnoticed"),
    (Code::FaultNotRecovered, "fault-not-recovered"),
    (Code::ZeroCopyCopied, "zero-copy-copied"),
    (Code::Stalled, "stalled"),
];

pub(crate) const NIC_XDP_MODES: Choices<NicXdpMode, 4> = [
    (NicXdpMode::Native, "native"),
    (NicXdpMode::Generic, "generic"),
    (NicXdpMode::Offloaded, "offloaded"),
    (NicXdpMode::Several, "several"),
];

pub(crate) const NIC_XDP_ABILITIES: Choices<NicXdpAbility, 7> = [
    (NicXdpAbility::Native, "native"),
    (NicXdpAbility::Redirect, "redirect"),
    (NicXdpAbility::RedirectTarget, "redirect-target"),
    (NicXdpAbility::ZeroCopy, "zero-copy"),
    (NicXdpAbility::Offload, "offload"),
    (NicXdpAbility::Fragments, "fragments"),
    (NicXdpAbility::TimestampMetadata, "timestamp-metadata"),
];

pub(crate) const NIC_PURPOSES: Choices<NicPurpose, 3> = [
    (NicPurpose::Serving, "serving"),
    (NicPurpose::Loading, "loading"),
    (NicPurpose::Accuracy, "accuracy"),
];

pub(crate) const HZ_SOURCES: Choices<HzSource, 3> = [
    (HzSource::Config, "config"),
    (HzSource::Resolution, "resolution"),
    (HzSource::Measured, "measured"),
];

pub(crate) const TICK_MODES: Choices<TickMode, 3> =
    [(TickMode::Periodic, "periodic"), (TickMode::Idle, "idle"), (TickMode::Full, "full")];

pub(crate) const DELAY_SLACKS: Choices<DelaySlack, 2> =
    [(DelaySlack::Default, "default"), (DelaySlack::Minimal, "minimal")];

pub(crate) const DELAY_KINDS: Choices<DelayKind, 12> = [
    (DelayKind::Sleep, "sleep"),
    (DelayKind::AlarmPause, "alarm-pause"),
    (DelayKind::Poll, "poll"),
    (DelayKind::EpollWait, "epoll-wait"),
    (DelayKind::Usleep, "usleep"),
    (DelayKind::Select, "select"),
    (DelayKind::Nanosleep, "nanosleep"),
    (DelayKind::ClockNanosleep, "clock-nanosleep"),
    (DelayKind::ClockNanosleepAbsolute, "clock-nanosleep-absolute"),
    (DelayKind::EpollPwait2, "epoll-pwait2"),
    (DelayKind::Timerfd, "timerfd"),
    (DelayKind::IoUring, "io-uring"),
];

pub(crate) const RESUMPTIONS: Choices<Resumption, 4> = [
    (Resumption::None, "none"),
    (Resumption::Remaining, "remaining"),
    (Resumption::Absolute, "absolute"),
    (Resumption::Again, "again"),
];

pub(crate) const CLAIM_VERDICTS: Choices<ClaimVerdict, 4> = [
    (ClaimVerdict::Holds, "holds"),
    (ClaimVerdict::Fails, "fails"),
    (ClaimVerdict::NotMeasured, "not-measured"),
    (ClaimVerdict::Elsewhere, "elsewhere"),
];

pub(crate) const LEAP_STATES: Choices<LeapState, 4> = [
    (LeapState::None, "none"),
    (LeapState::Insert, "insert"),
    (LeapState::Delete, "delete"),
    (LeapState::Unsynchronised, "unsynchronised"),
];

pub(crate) const QUERY_ENDS: Choices<QueryEndReason, 5> = [
    (QueryEndReason::Interrupted, "interrupted"),
    (QueryEndReason::Kiss, "kiss"),
    (QueryEndReason::Unresolved, "unresolved"),
    (QueryEndReason::Unreachable, "unreachable"),
    (QueryEndReason::NoKeys, "no-keys"),
];

pub(crate) const POLICIES: Choices<SchedulingPolicy, 2> =
    [(SchedulingPolicy::Fifo, "fifo"), (SchedulingPolicy::Other, "other")];

pub(crate) const TASK_POLICIES: Choices<TaskPolicy, 4> = [
    (TaskPolicy::Fifo, "fifo"),
    (TaskPolicy::Rr, "rr"),
    (TaskPolicy::Other, "other"),
    (TaskPolicy::Deadline, "deadline"),
];

pub(crate) const CYCLE_SIGNALS: Choices<CycleSignal, 3> = [
    (CycleSignal::Monotonic, "monotonic"),
    (CycleSignal::Utc, "utc"),
    (CycleSignal::Packet, "packet"),
];

pub(crate) const HANDLER_KINDS: Choices<HandlerKind, 3> = [
    (HandlerKind::Kernel, "kernel"),
    (HandlerKind::Signal, "signal"),
    (HandlerKind::Timerfd, "timerfd"),
];

pub(crate) const HOST_VERDICTS: Choices<HostVerdict, 4> = [
    (HostVerdict::Fit, "fit"),
    (HostVerdict::Doubtful, "doubtful"),
    (HostVerdict::Unfit, "unfit"),
    (HostVerdict::Unjudged, "unjudged"),
];

pub(crate) const HOST_PARTS: Choices<HostPart, 6> = [
    (HostPart::Clock, "clock"),
    (HostPart::Delay, "delay"),
    (HostPart::Timer, "timer"),
    (HostPart::Switch, "switch"),
    (HostPart::Interrupt, "interrupt"),
    (HostPart::Nic, "nic"),
];

pub(crate) const HOST_PART_STATES: Choices<HostPartState, 7> = [
    (HostPartState::Measured, "measured"),
    (HostPartState::Reduced, "reduced"),
    (HostPartState::Failed, "failed"),
    (HostPartState::Interrupted, "interrupted"),
    (HostPartState::NotBegun, "not-begun"),
    (HostPartState::Skipped, "skipped"),
    (HostPartState::Absent, "absent"),
];

pub(crate) const SWITCH_PARTNERS: Choices<SwitchPartner, 2> =
    [(SwitchPartner::Process, "process"), (SwitchPartner::Thread, "thread")];

pub(crate) const SWITCH_WAYS: Choices<SwitchWay, 3> =
    [(SwitchWay::Pipe, "pipe"), (SwitchWay::Futex, "futex"), (SwitchWay::Eventfd, "eventfd")];

pub(crate) const SWITCH_PLACEMENTS: Choices<SwitchPlacement, 2> =
    [(SwitchPlacement::SameCore, "same-core"), (SwitchPlacement::AcrossCores, "across-cores")];

pub(crate) const PATH_PROTOCOLS: Choices<PathProtocol, 2> =
    [(PathProtocol::Horolog, "horolog"), (PathProtocol::Stamp, "stamp")];

pub(crate) const PATH_MODES: Choices<PathMode, 2> =
    [(PathMode::PingPong, "ping-pong"), (PathMode::OpenLoop, "open-loop")];

pub(crate) const ROW_ENDS: Choices<RowEnd, 4> = [
    (RowEnd::Interrupted, "interrupted"),
    (RowEnd::Vanished, "vanished"),
    (RowEnd::Closed, "closed"),
    (RowEnd::Failed, "failed"),
];

pub(crate) const STAMP_KINDS: Choices<StampKind, 3> =
    [(StampKind::Hardware, "hardware"), (StampKind::Kernel, "kernel"), (StampKind::User, "user")];

pub(crate) const TCP_DIRECTIONS: Choices<TcpDirection, 2> =
    [(TcpDirection::Out, "out"), (TcpDirection::Back, "back")];

pub(crate) const STALL_PATTERNS: Choices<StallPattern, 8> = [
    (StallPattern::Single, "single"),
    (StallPattern::WriteWriteRead, "write-write-read"),
    (StallPattern::FullSegments, "full-segments"),
    (StallPattern::LastWithEnd, "last-with-end"),
    (StallPattern::Batch, "batch"),
    (StallPattern::HeaderAndBody, "header-and-body"),
    (StallPattern::HeaderBodyClose, "header-body-close"),
    (StallPattern::CorkForgotten, "cork-forgotten"),
];

pub(crate) const SOCKET_OPTIONS: Choices<SocketOption, 5> = [
    (SocketOption::None, "none"),
    (SocketOption::NoDelay, "no-delay"),
    (SocketOption::QuickAckOnce, "quick-ack-once"),
    (SocketOption::QuickAckEach, "quick-ack-each"),
    (SocketOption::Cork, "cork"),
];

pub(crate) const MECHANISMS: Choices<Mechanism, 6> = [
    (Mechanism::NagleDelayedAck, "nagle-delayed-ack"),
    (Mechanism::WindowDelayedAck, "window-delayed-ack"),
    (Mechanism::Cork, "cork"),
    (Mechanism::LateAnswer, "late-answer"),
    (Mechanism::Loss, "loss"),
    (Mechanism::Elsewhere, "elsewhere"),
];

pub(crate) const STALL_EVIDENCE: Choices<StallEvidence, 2> =
    [(StallEvidence::TcpInfo, "tcp-info"), (StallEvidence::Packets, "packets")];

pub(crate) const TREE_ASSUMPTIONS: Choices<RelayTreeAssumption, 5> = [
    (RelayTreeAssumption::SameDegree, "same-degree"),
    (RelayTreeAssumption::SameDepth, "same-depth"),
    (RelayTreeAssumption::SameNodes, "same-nodes"),
    (RelayTreeAssumption::SamePath, "same-path"),
    (RelayTreeAssumption::SamePlace, "same-place"),
];

pub(crate) const TREE_SHAPES: Choices<RelayTreeShapeKind, 3> = [
    (RelayTreeShapeKind::Compact, "compact"),
    (RelayTreeShapeKind::Star, "star"),
    (RelayTreeShapeKind::Chain, "chain"),
];

pub(crate) fn check<T: Serialize + Debug, const N: usize>(choices: Choices<T, N>) {
    for (choice, name) in choices {
        assert_eq!(serde_json::to_value(&choice).unwrap(), name, "{choice:?}");
    }
}

#[test]
fn each_choice_keeps_its_name() {
    check(MODES);
    check(ENGINES);
    check(CAMPAIGN_ENDS);
    check(CAMPAIGN_LIMITS);
    check(COMPARED_FIGURES);
    check(COMPARE_VERDICTS);
    check(SPACINGS);
    check(REASONS);
    check(PLACES);
    check(SEARCH_KINDS);
    check(SEARCH_ENDS);
    check(RELAY_ENGINES);
    check(LIMIT_UNITS);
    check(SEVERITIES);
    check(CODES);
    check(CLOCK_METHODS);
    check(COMPARED_KINDS);
    check(LEAP_STATES);
    check(HZ_SOURCES);
    check(NIC_XDP_MODES);
    check(NIC_XDP_ABILITIES);
    check(NIC_PURPOSES);
    check(TICK_MODES);
    check(DELAY_SLACKS);
    check(DELAY_KINDS);
    check(RESUMPTIONS);
    check(CLAIM_VERDICTS);
    check(QUERY_ENDS);
    check(STAMP_KINDS);
    check(POLICIES);
    check(TASK_POLICIES);
    check(CYCLE_SIGNALS);
    check(HANDLER_KINDS);
    check(HOST_VERDICTS);
    check(HOST_PARTS);
    check(HOST_PART_STATES);
    check(SWITCH_PARTNERS);
    check(SWITCH_WAYS);
    check(SWITCH_PLACEMENTS);
    check(TCP_DIRECTIONS);
    check(STALL_PATTERNS);
    check(SOCKET_OPTIONS);
    check(MECHANISMS);
    check(STALL_EVIDENCE);
    check(PATH_PROTOCOLS);
    check(PATH_MODES);
    check(ROW_ENDS);
    check(TREE_ASSUMPTIONS);
    check(TREE_SHAPES);
}
