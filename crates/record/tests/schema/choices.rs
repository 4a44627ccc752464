//! What is chosen from a list stands in a result by name. The tables here are those names, and the
//! strategies choose from them.

use std::fmt::Debug;

use horolog_record::{
    CampaignEnd, CampaignLimitOf, ClaimVerdict, ClockMethodKind, CompareVerdict, ComparedKind,
    ComparedMetricKind, CycleSignal, DelayKind, DelaySlack, FindingCode, HandlerKind, HostPart,
    HostPartState, HostVerdict, HzSource, InvalidReason, LeapState, LimitUnit, LoadEngineKind,
    LossLocation, Mechanism, NicPurpose, NicXdpFeature, NicXdpMode, PathMode, PathProtocol,
    QueryEndReason, RelayEngine, RelayTreeAssumption, RelayTreeShapeKind, RequestMode, Resumption,
    RowEnd, SchedulingPolicy, SearchEnd, SearchKind, Severity, SocketOption, Spacing,
    StallEvidence, StallPattern, SwitchMechanism, SwitchPeer, SwitchPlacement, TaskPolicy,
    TcpDirection, TickMode, TimestampSource,
};
use serde::Serialize;

/// Each choice with its name in a file.
pub(crate) type Choices<T, const N: usize> = [(T, &'static str); N];

pub(crate) const MODES: Choices<RequestMode, 9> = [
    (RequestMode::NtpBasic, "ntp-basic"),
    (RequestMode::NtpInterleaved, "ntp-interleaved"),
    (RequestMode::NtpNts, "ntp-nts"),
    (RequestMode::NtsKe, "nts-ke"),
    (RequestMode::PtpDelay, "ptp-delay"),
    (RequestMode::PtpNsm, "ptp-nsm"),
    (RequestMode::PtpUnicast, "ptp-unicast"),
    (RequestMode::Echo, "echo"),
    (RequestMode::Mix, "mix"),
];

pub(crate) const CAMPAIGN_LIMITS: Choices<CampaignLimitOf, 2> =
    [(CampaignLimitOf::Servers, "servers"), (CampaignLimitOf::Generators, "generators")];

pub(crate) const COMPARED_FIGURES: Choices<ComparedMetricKind, 7> = [
    (ComparedMetricKind::P50, "p50"),
    (ComparedMetricKind::P99, "p99"),
    (ComparedMetricKind::P999, "p99.9"),
    (ComparedMetricKind::Loss, "loss"),
    (ComparedMetricKind::Rate, "rate"),
    (ComparedMetricKind::Time, "time"),
    (ComparedMetricKind::Offset, "offset"),
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

pub(crate) const ENGINES: Choices<LoadEngineKind, 3> = [
    (LoadEngineKind::Udp, "udp"),
    (LoadEngineKind::Packet, "packet"),
    (LoadEngineKind::Xdp, "xdp"),
];

pub(crate) const SPACINGS: Choices<Spacing, 2> =
    [(Spacing::Constant, "constant"), (Spacing::Exponential, "exponential")];

pub(crate) const REASONS: Choices<InvalidReason, 21> = [
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
    (InvalidReason::KissRate, "kiss-rate"),
    (InvalidReason::KissDeny, "kiss-deny"),
    (InvalidReason::KissRstr, "kiss-rstr"),
    (InvalidReason::KissOther, "kiss-other"),
    (InvalidReason::UnicastTerms, "unicast-terms"),
    (InvalidReason::Nts, "nts"),
    (InvalidReason::Mac, "mac"),
    (InvalidReason::KissNtsn, "kiss-ntsn"),
];

pub(crate) const LOSS_LOCATIONS: Choices<LossLocation, 9> = [
    (LossLocation::Generator, "generator"),
    (LossLocation::OwnRing, "own_ring"),
    (LossLocation::Link, "link"),
    (LossLocation::Interface, "interface"),
    (LossLocation::Socket, "socket"),
    (LossLocation::Server, "server"),
    (LossLocation::Late, "late"),
    (LossLocation::Invalid, "invalid"),
    (LossLocation::Unknown, "unknown"),
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

pub(crate) const CODES: Choices<FindingCode, 98> = [
    (FindingCode::GeneratorBehind, "generator-behind"),
    (FindingCode::GeneratorLimit, "generator-limit"),
    (FindingCode::RequestsLate, "requests-late"),
    (FindingCode::ReceiveRingOverflow, "receive-ring-overflow"),
    (FindingCode::SharedMachine, "shared-machine"),
    (FindingCode::ClockUnsynchronised, "clock-unsynchronised"),
    (FindingCode::ServerUnsynchronised, "server-unsynchronised"),
    (FindingCode::CpuFrequencyChanged, "cpu-frequency-changed"),
    (FindingCode::NoReplies, "no-replies"),
    (FindingCode::InvalidReplies, "invalid-replies"),
    (FindingCode::DuplicateReplies, "duplicate-replies"),
    (FindingCode::LossUnattributed, "loss-unattributed"),
    (FindingCode::FewSamples, "few-samples"),
    (FindingCode::TrialsInconsistent, "trials-inconsistent"),
    (FindingCode::SearchUnfinished, "search-unfinished"),
    (FindingCode::Interrupted, "interrupted"),
    (FindingCode::EngineFailed, "engine-failed"),
    (FindingCode::EngineFallback, "engine-fallback"),
    (FindingCode::InterleavedNotUsed, "interleaved-not-used"),
    (FindingCode::CaptureIncomplete, "capture-incomplete"),
    (FindingCode::CountersUnavailable, "counters-unavailable"),
    (FindingCode::ServerOutage, "server-outage"),
    (FindingCode::NotRecovered, "not-recovered"),
    (FindingCode::UnfairReplies, "unfair-replies"),
    (FindingCode::CompliantClientLoss, "compliant-client-loss"),
    (FindingCode::NtsKeFailed, "nts-ke-failed"),
    (FindingCode::KeysRenewed, "keys-renewed"),
    (FindingCode::AlgorithmAbandoned, "algorithm-abandoned"),
    (FindingCode::OtherNtpServer, "other-ntp-server"),
    (FindingCode::CountsDisagree, "counts-disagree"),
    (FindingCode::RepliesNotDecrypted, "replies-not-decrypted"),
    (FindingCode::RepliesWithoutTimestamp, "replies-without-timestamp"),
    (FindingCode::OffsetsTooLarge, "offsets-too-large"),
    (FindingCode::KissOfDeath, "kiss-of-death"),
    (FindingCode::TimestampsMissing, "timestamps-missing"),
    (FindingCode::ServersDisagree, "servers-disagree"),
    (FindingCode::NegativeDelay, "negative-delay"),
    (FindingCode::NeverLocked, "never-locked"),
    (FindingCode::ClockStepped, "clock-stepped"),
    (FindingCode::ClockUnreadable, "clock-unreadable"),
    (FindingCode::TaiUnknown, "tai-unknown"),
    (FindingCode::UnicastDenied, "unicast-denied"),
    (FindingCode::FarEndUnreachable, "far-end-unreachable"),
    (FindingCode::FarEndLimit, "far-end-limit"),
    (FindingCode::PathLoss, "path-loss"),
    (FindingCode::PathReordered, "path-reordered"),
    (FindingCode::Fragmented, "fragmented"),
    (FindingCode::OneWayUnavailable, "one-way-unavailable"),
    (FindingCode::DscpChanged, "dscp-changed"),
    (FindingCode::PathLoadNotReached, "path-load-not-reached"),
    (FindingCode::ClockBackwards, "clock-backwards"),
    (FindingCode::ClockSlow, "clock-slow"),
    (FindingCode::DeepIdle, "deep-idle"),
    (FindingCode::TimerSlackLarge, "timer-slack-large"),
    (FindingCode::CoarseTimers, "coarse-timers"),
    (FindingCode::WaitsReturnedEarly, "waits-returned-early"),
    (FindingCode::FunctionUnavailable, "function-unavailable"),
    (FindingCode::NicDrops, "nic-drops"),
    (FindingCode::NicDown, "nic-down"),
    (FindingCode::RealTimeRefused, "real-time-refused"),
    (FindingCode::MemoryNotLocked, "memory-not-locked"),
    (FindingCode::IdleStatesNotHeld, "idle-states-not-held"),
    (FindingCode::PeriodsMissed, "periods-missed"),
    (FindingCode::LatencyAboveBreak, "latency-above-break"),
    (FindingCode::NegativeFigure, "negative-figure"),
    (FindingCode::SwitchesMissing, "switches-missing"),
    (FindingCode::HandlerUnavailable, "handler-unavailable"),
    (FindingCode::OsNoise, "os-noise"),
    (FindingCode::WakeupLatencyHigh, "wakeup-latency-high"),
    (FindingCode::PartUnmeasured, "part-unmeasured"),
    (FindingCode::DeadlinesMissed, "deadlines-missed"),
    (FindingCode::PeriodsNotRecorded, "periods-not-recorded"),
    (FindingCode::TaskFailed, "task-failed"),
    (FindingCode::NodeLost, "node-lost"),
    (FindingCode::StragglerNode, "straggler-node"),
    (FindingCode::MessagesMissing, "messages-missing"),
    (FindingCode::BarriersBroken, "barriers-broken"),
    (FindingCode::ReleaseSignalLost, "release-signal-lost"),
    (FindingCode::PeriodsNotRun, "periods-not-run"),
    (FindingCode::TaskUnschedulable, "task-unschedulable"),
    (FindingCode::CoreOverloaded, "core-overloaded"),
    (FindingCode::BoundConditional, "bound-conditional"),
    (FindingCode::BoundExceeded, "bound-exceeded"),
    (FindingCode::CostMissing, "cost-missing"),
    (FindingCode::TaskSetMismatch, "task-set-mismatch"),
    (FindingCode::CostFromOtherMachine, "cost-from-other-machine"),
    (FindingCode::CostUncertain, "cost-uncertain"),
    (FindingCode::RealTimeThrottled, "real-time-throttled"),
    (FindingCode::AgentLost, "agent-lost"),
    (FindingCode::MergeIncomplete, "merge-incomplete"),
    (FindingCode::StartSpreadLarge, "start-spread-large"),
    (FindingCode::StartTimesDiffer, "start-times-differ"),
    (FindingCode::BrokerUnreachable, "broker-unreachable"),
    (FindingCode::FaultNotInjected, "fault-not-injected"),
    (FindingCode::FaultNotDetected, "fault-not-detected"),
    (FindingCode::FaultNotRecovered, "fault-not-recovered"),
    (FindingCode::ZeroCopyFallback, "zero-copy-fallback"),
    (FindingCode::Stalled, "stalled"),
];

pub(crate) const NIC_XDP_MODES: Choices<NicXdpMode, 4> = [
    (NicXdpMode::Native, "native"),
    (NicXdpMode::Generic, "generic"),
    (NicXdpMode::Offloaded, "offloaded"),
    (NicXdpMode::Several, "several"),
];

pub(crate) const NIC_XDP_ABILITIES: Choices<NicXdpFeature, 7> = [
    (NicXdpFeature::Native, "native"),
    (NicXdpFeature::Redirect, "redirect"),
    (NicXdpFeature::RedirectTarget, "redirect-target"),
    (NicXdpFeature::ZeroCopy, "zero-copy"),
    (NicXdpFeature::Offload, "offload"),
    (NicXdpFeature::Fragments, "fragments"),
    (NicXdpFeature::TimestampMetadata, "timestamp-metadata"),
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
    (HostVerdict::Marginal, "marginal"),
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

pub(crate) const SWITCH_PARTNERS: Choices<SwitchPeer, 2> =
    [(SwitchPeer::Process, "process"), (SwitchPeer::Thread, "thread")];

pub(crate) const SWITCH_WAYS: Choices<SwitchMechanism, 3> = [
    (SwitchMechanism::Pipe, "pipe"),
    (SwitchMechanism::Futex, "futex"),
    (SwitchMechanism::Eventfd, "eventfd"),
];

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

pub(crate) const TIMESTAMP_SOURCES: Choices<TimestampSource, 3> = [
    (TimestampSource::Hardware, "hardware"),
    (TimestampSource::Kernel, "kernel"),
    (TimestampSource::User, "user"),
];

pub(crate) const TCP_DIRECTIONS: Choices<TcpDirection, 2> =
    [(TcpDirection::Forward, "forward"), (TcpDirection::Backward, "backward")];

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
    (RelayTreeAssumption::SameIndex, "same-index"),
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
    check(LOSS_LOCATIONS);
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
    check(TIMESTAMP_SOURCES);
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
