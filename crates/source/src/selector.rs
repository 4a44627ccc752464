//! Selector of all sources of a server: polls each, retains its last report until that is too old,
//! selects, and reports changes. Each notice appears once, at the change, and not again while the
//! state lasts.

use horolog_discipline::{Implausible, Plausibility, Support, TimeEvidence, TimeJudge, agree};
use horolog_time::leap::Date;
use horolog_time::{Monotonic, NS_PER_S, Span, Timestamp};
use horolog_wire::ntp::LeapIndicator;
use serde::Serialize;

use crate::{
    ClockReadings, JUMP_MAX, NamedCounts, SelectionCandidate, SourceError, SourceEstimate,
    TimeSource, select,
};

/// Age at which a report expires if no newer one comes.
pub const STALE: Span = Span::from_ns(8 * NS_PER_S);

/// Timeout of a source that has reported nothing yet, and has no error, before it is unresponsive:
/// a receiver's first sentences have to agree.
pub const FIRST_REPORT_TIMEOUT: Span = Span::from_ns(12 * NS_PER_S);

/// Result of the selection for a source.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SelectionState {
    /// Its time is served.
    Selected,
    /// It agrees with the majority.
    Truechimer,
    /// It contradicts the majority.
    Falseticker,
    /// It contradicts others, and there is no majority.
    Undecided,
    /// It has reported nothing for too long.
    Unresponsive,
    /// It reports that it is not synchronised, an implausible time, or unusable data.
    Unusable,
}

/// Source as shown in the status.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct SourceState {
    /// Its name.
    pub name: String,
    /// Result of the selection for it.
    pub state: SelectionState,
    /// System clock minus true time by this source, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset_ns: Option<i64>,
    /// Maximum error of that, root distance included, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncertainty_ns: Option<i64>,
    /// Stratum to claim when following it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stratum: Option<u8>,
    /// Age of its report, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_ms: Option<i64>,
    /// Reason for which it is not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Reports that were rejected because their time was not plausible, by reason.
    #[serde(skip_serializing_if = "NamedCounts::is_empty")]
    pub rejected: NamedCounts,
}

/// Result of polling all sources once.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PollRound {
    /// Estimate to serve; `None` if no source, or no majority, reports the time.
    pub selected: Option<SourceEstimate>,
    /// True time minus the monotonic clock by the selected source, if another one confirms it and
    /// one of the two is no mirror of the system clock, or if the operator has accepted it.
    pub confirmed: Option<Span>,
    /// State of each source, in configuration order.
    pub states: Vec<SourceState>,
    /// Notices of changes, one line each.
    pub notices: Vec<String>,
}

struct PolledSource {
    source: Box<dyn TimeSource>,
    report: Option<SourceEstimate>,
    /// True time minus the monotonic clock by the last report.
    ahead: Span,
    fault: Option<SourceError>,
    judge: TimeJudge,
    /// Reason for which the time of the last report is not plausible.
    implausibility: Option<Implausible>,
    /// Clock of this host that confirms it, of which it is no mirror.
    host_clock: Option<Span>,
    rejected: NamedCounts,
    /// True if the last report is of this round.
    is_new: bool,
    /// Instant of its first poll.
    polled: Option<Timestamp<Monotonic>>,
    /// Its state in the last round; `None` while its first report is awaited.
    standing: Option<SelectionState>,
}

/// Sources of a server with their states.
pub struct SourceSelector {
    members: Vec<PolledSource>,
    selected: Option<String>,
    /// Times that the operator has accepted since the last round: the source and the time.
    accepted: Vec<(String, Span)>,
}

impl std::fmt::Debug for SourceSelector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.members.iter().map(|member| member.source.name())).finish()
    }
}

impl SourceSelector {
    /// Creates a selector of these sources, whose times are judged by these facts.
    #[must_use]
    pub fn new(sources: Vec<Box<dyn TimeSource>>, basis: Plausibility) -> Self {
        let members = sources.into_iter().map(|source| PolledSource::new(source, basis)).collect();
        Self { members, selected: None, accepted: Vec::new() }
    }

    /// Accepts the times that are implausible at present, on the operator's command.
    pub fn accept(&mut self) {
        let accept = |member: &mut PolledSource| {
            member.judge.accept().map(|ahead| (member.source.name().to_owned(), ahead))
        };
        self.accepted.extend(self.members.iter_mut().filter_map(accept));
    }

    /// Returns true if there is no source at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Polls every source and selects. `read_clocks` is called for each source.
    pub fn poll(&mut self, read_clocks: impl Fn() -> ClockReadings) -> PollRound {
        for member in &mut self.members {
            member.poll(&read_clocks());
        }
        let last = read_clocks();
        let now = last.monotonic;
        self.judge(&last);
        let voters: Vec<_> =
            (0..self.members.len()).filter(|&index| self.members[index].votes(now)).collect();
        let standings = self.select(&voters, now);
        let mut notices: Vec<_> = self
            .accepted
            .drain(..)
            .map(|(name, ahead)| {
                let date = Date(Timestamp::from_ns(now.as_ns().saturating_add(ahead.as_ns())));
                format!("the operator accepted the time of {name}, which reports {date}")
            })
            .collect();
        notices.extend(self.notices(&standings, now));
        for (member, standing) in self.members.iter_mut().zip(&standings) {
            member.standing = Some(*standing).filter(|_| !member.is_awaited(now));
            member.source.selection_changed(*standing);
        }
        let selected =
            self.members.iter().find(|one| one.standing == Some(SelectionState::Selected));
        self.selected = selected.map(|member| member.source.name().to_owned());
        PollRound {
            selected: selected.and_then(PolledSource::confirmed_report),
            confirmed: selected
                .filter(|member| member.judge.is_accepted(member.ahead) || self.confirm(member))
                .map(|member| member.ahead),
            states: self.members.iter().map(|member| member.state(now)).collect(),
            notices,
        }
    }

    /// Judges the time of each source against the system clock and the other sources. Two mirrors
    /// of the system clock count as one.
    fn judge(&mut self, readings: &ClockReadings) {
        let now = readings.monotonic;
        let claim = |member: &PolledSource| {
            member.is_fresh(now).then(|| (member.ahead, member.source.is_mirror()))
        };
        let claims: Vec<_> = self.members.iter().map(claim).collect();
        let system = self.system_clock(readings);
        for (index, member) in self.members.iter_mut().enumerate() {
            let Some((_, is_mirror)) = claims[index] else {
                member.implausibility = None;
                continue;
            };
            let is_independent = |(other, _): &(usize, _)| *other != index;
            let others = claims.iter().enumerate().filter(is_independent);
            let others = others.filter_map(|(_, claim)| *claim);
            let others: Vec<_> = others
                .filter(|(_, mirrors)| !mirrors || !is_mirror && system.is_some())
                .map(|(ahead, _)| ahead)
                .collect();
            member.judged_by(&TimeEvidence { now, system, others: &others });
        }
    }

    /// Returns the system clock ahead of the monotonic one, unless it shows no more than a source's
    /// time that nothing had confirmed when it was set.
    fn system_clock(&self, readings: &ClockReadings) -> Option<Span> {
        let system = readings.realtime_minus_monotonic;
        let mut set = self.members.iter().filter_map(|member| member.source.set_unconfirmed());
        (!set.any(|ahead| agree(ahead, system))).then_some(system)
    }

    /// Returns true if another source confirms the time of the selected one.
    fn confirm(&self, selected: &PolledSource) -> bool {
        self.members.iter().any(|member| {
            let apart = (member.ahead - selected.ahead).as_ns().unsigned_abs();
            member.standing == Some(SelectionState::Truechimer)
                && apart <= JUMP_MAX.as_ns().unsigned_abs()
                && !(member.source.is_mirror() && selected.source.is_mirror())
        })
    }

    fn select(&self, voters: &[usize], now: Timestamp<Monotonic>) -> Vec<SelectionState> {
        let candidate = |&index: &usize| {
            let PolledSource { source, report, .. } = &self.members[index];
            report.map(|report| SelectionCandidate { name: source.name(), report })
        };
        let candidates: Vec<_> = voters.iter().filter_map(candidate).collect();
        let result = select(&candidates, self.selected.as_deref(), now);
        let mut standings: Vec<_> = self.members.iter().map(PolledSource::absence).collect();
        // An implausible time contradicts others, and is not served without confirmation.
        let is_implausible =
            |position: usize| self.members[voters[position]].implausibility.is_some();
        let is_served = result.selected.is_some_and(|position| !is_implausible(position));
        for (position, &index) in voters.iter().enumerate() {
            standings[index] = match result.selected {
                None => SelectionState::Undecided,
                Some(_) if !is_served && is_implausible(position) => SelectionState::Unusable,
                Some(selected) if selected == position => SelectionState::Selected,
                Some(_) if result.truechimers.contains(&position) => SelectionState::Truechimer,
                Some(_) => SelectionState::Falseticker,
            };
        }
        standings
    }

    fn notices(&self, standings: &[SelectionState], now: Timestamp<Monotonic>) -> Vec<String> {
        let mut notices = Vec::new();
        for (member, &standing) in self.members.iter().zip(standings) {
            let before = member.standing;
            if before != Some(standing) && !member.is_awaited(now) {
                notices.extend(member.notice(standing, now));
            }
        }
        let split =
            |standing: Option<&SelectionState>| standing == Some(&SelectionState::Undecided);
        let was_split = self.members.iter().any(|member| split(member.standing.as_ref()));
        if standings.iter().any(|standing| split(Some(standing))) && !was_split {
            notices.push(self.disagreement(standings, now));
        }
        let is_available = |one: &SelectionState| {
            matches!(one, SelectionState::Selected | SelectionState::Undecided)
        };
        let is_awaited = self.members.iter().any(|member| member.is_awaited(now));
        let is_none_available = !is_awaited && !standings.iter().any(is_available);
        let was_none_available = self
            .members
            .iter()
            .all(|member| member.standing.is_some_and(|one| !is_available(&one)));
        if is_none_available && !was_none_available {
            let never = self.members.iter().all(|member| member.report.is_none());
            let what = if never { "is available yet" } else { "is available any more" };
            notices.push(format!("no time source {what}; all replies report unsynchronised"));
        }
        notices
    }

    fn disagreement(&self, standings: &[SelectionState], now: Timestamp<Monotonic>) -> String {
        let claim = |(member, standing): (&PolledSource, &SelectionState)| match member.report {
            Some(report) if *standing == SelectionState::Undecided => {
                Some(format!("{} reports that {}", member.source.name(), claim(&report, now)))
            }
            _ => None,
        };
        let claims: Vec<_> = self.members.iter().zip(standings).filter_map(claim).collect();
        format!(
            "the time sources disagree without a majority: {}; all replies report unsynchronised \
             until they agree or another --source decides",
            claims.join(", ")
        )
    }
}

/// Formats an offset with its bounds, with the sign used in all messages and with two significant
/// digits of its bounds.
fn claim(report: &SourceEstimate, now: Timestamp<Monotonic>) -> String {
    let ahead_s = -report.offset_at(now).as_seconds();
    let distance_s = report.distance_at(now).as_seconds();
    let digits = (1.0 - distance_s.max(1e-9).log10().floor()).clamp(0.0, 9.0) as usize;
    format!("the system clock is ahead by {ahead_s:+.digits$} s (±{distance_s:.digits$} s)")
}

impl PolledSource {
    fn new(mut source: Box<dyn TimeSource>, basis: Plausibility) -> Self {
        source.judge_by(basis);
        Self {
            source,
            report: None,
            ahead: Span::ZERO,
            fault: None,
            judge: TimeJudge::new(basis),
            implausibility: None,
            host_clock: None,
            rejected: NamedCounts::default(),
            is_new: false,
            polled: None,
            standing: None,
        }
    }

    /// Judges the time of the last report.
    fn judged_by(&mut self, evidence: &TimeEvidence<'_>) {
        self.implausibility = self.judge.judge(evidence, self.ahead).err();
        self.host_clock =
            self.judge.host_clock(evidence, self.ahead).filter(|_| !self.source.is_mirror());
        match (self.implausibility, self.judge.support()) {
            (None, Some(support)) => self.source.vouch(self.ahead, support),
            (Some(reason), _) if self.is_new => self.rejected.add(reason.name()),
            _ => {}
        }
    }

    /// Returns the last report, with the results of the judgement.
    fn confirmed_report(&self) -> Option<SourceEstimate> {
        let is_unconfirmed = self.judge.support() == Some(Support::Unopposed);
        self.report.map(|report| SourceEstimate {
            is_unconfirmed,
            host_clock: self.host_clock,
            ..report
        })
    }

    /// Returns true if it has not reported anything yet and may still do so in time.
    fn is_awaited(&self, now: Timestamp<Monotonic>) -> bool {
        let is_young =
            self.polled.is_some_and(|first_polled| now - first_polled < FIRST_REPORT_TIMEOUT);
        is_young && self.report.is_none() && self.fault.is_none()
    }

    fn poll(&mut self, readings: &ClockReadings) {
        self.polled.get_or_insert(readings.monotonic);
        let result = self.source.poll(readings);
        self.is_new = matches!(result, Ok(Some(_)));
        match result {
            Ok(Some(report)) => {
                self.fault = (report.leap == LeapIndicator::Unsynchronised).then(|| {
                    SourceError::Unusable("it reports that it is not synchronised".into())
                });
                self.report = Some(report);
                self.ahead = report.offset + readings.realtime_minus_monotonic;
            }
            Ok(None) => {}
            Err(fault) => {
                if matches!(fault, SourceError::Unusable(_)) {
                    self.report = None;
                }
                self.fault = Some(fault);
            }
        }
    }

    /// Returns true if it has a report at `now` that is neither old nor refused.
    fn is_fresh(&self, now: Timestamp<Monotonic>) -> bool {
        let fresh = |report: &SourceEstimate| {
            report.leap != LeapIndicator::Unsynchronised && now - report.at <= STALE
        };
        self.report.as_ref().is_some_and(fresh)
    }

    /// Returns true if that report takes part in the selection.
    fn votes(&self, now: Timestamp<Monotonic>) -> bool {
        self.is_fresh(now) && self.implausibility.is_none_or(Implausible::is_confirmable)
    }

    fn absence(&self) -> SelectionState {
        match (&self.fault, self.implausibility) {
            (Some(SourceError::Unusable(_)), _) | (_, Some(_)) => SelectionState::Unusable,
            _ => SelectionState::Unresponsive,
        }
    }

    fn reason(&self) -> String {
        match (self.implausibility, &self.fault) {
            (Some(implausibility), _) => in_words(implausibility),
            (None, Some(fault)) => fault.to_string(),
            (None, None) => "no data received from it".into(),
        }
    }

    fn notice(&self, standing: SelectionState, now: Timestamp<Monotonic>) -> Option<String> {
        let name = self.source.name();
        let claim = || self.report.map(|report| claim(&report, now)).unwrap_or_default();
        match standing {
            SelectionState::Selected => Some(format!("selected the source {name}: {}", claim())),
            SelectionState::Falseticker => Some(format!(
                "the source {name} is a falseticker: it reports that {}, which contradicts the \
                 majority",
                claim()
            )),
            SelectionState::Unresponsive => {
                Some(format!("the source {name} does not respond: {}", self.reason()))
            }
            SelectionState::Unusable => {
                Some(format!("the source {name} is unusable: {}", self.reason()))
            }
            SelectionState::Truechimer | SelectionState::Undecided => None,
        }
    }

    fn state(&self, now: Timestamp<Monotonic>) -> SourceState {
        let state = self.standing.unwrap_or(SelectionState::Unresponsive);
        let report = self.report.as_ref();
        let idle = matches!(state, SelectionState::Unresponsive | SelectionState::Unusable);
        SourceState {
            name: self.source.name().to_owned(),
            state,
            offset_ns: report.map(|report| report.offset_at(now).as_ns().saturating_neg()),
            uncertainty_ns: report.map(|report| report.distance_at(now).as_ns()),
            stratum: report.map(|report| report.stratum),
            age_ms: report.map(|report| (now - report.at).as_ns() / 1_000_000),
            reason: idle.then(|| self.reason()),
            rejected: self.rejected.clone(),
        }
    }
}

/// Returns the reason for which a time is rejected, with the command by which the operator decides
/// if that is possible.
fn in_words(implausibility: Implausible) -> String {
    if !implausibility.is_confirmable() {
        return implausibility.to_string();
    }
    let pid = std::process::id();
    format!("{implausibility}; if it is right, confirm it with: kill -HUP {pid}")
}

#[cfg(test)]
mod tests;
