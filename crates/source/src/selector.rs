//! Selector among the sources of a server: polls each, keeps its last estimate until that is too
//! old, selects one, and reports changes. Each notice appears once, at the change.

use std::fmt;

use horolog_discipline::{
    ImplausibilityReason, PlausibilityEvidence, PlausibilityJudge, PlausibilityReason,
    PlausibilityRuleParameters, is_within_a_day,
};
use horolog_time::leap::Date;
use horolog_time::{Monotonic, NS_PER_S, Span, Timestamp};
use horolog_wire::ntp::LeapIndicator;
use serde::{Deserialize, Serialize};

use crate::{
    ClockReadings, JUMP_MAX, NamedCounts, PollableTimeSource, SelectionCandidate, SourceError,
    SourceEstimate, select,
};

/// Age at which an estimate expires.
pub const REPORT_AGE_MAX: Span = Span::from_ns(8 * NS_PER_S);

/// Time that a source has for its first estimate before it counts as unresponsive, unless it
/// reports an error: a receiver's first sentences have to agree.
pub const FIRST_REPORT_TIMEOUT: Span = Span::from_ns(12 * NS_PER_S);

/// Result of the selection for one source.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SelectionState {
    /// Selected: the time of the source is served.
    Selected,
    /// Agrees with the majority.
    Truechimer,
    /// Contradicts the majority.
    Falseticker,
    /// Contradicts other sources, and there is no majority.
    Undecided,
    /// Has reported nothing for too long.
    Unresponsive,
    /// Not synchronised, an implausible time, or unusable data.
    Unusable,
}

impl fmt::Display for SelectionState {
    /// Writes the name in the status.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Status of a source, in the status of the server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SourceStatus {
    /// Name of the source.
    pub name: String,
    /// Result of the last selection for the source.
    pub state: SelectionState,
    /// System clock minus true time by this source, in nanoseconds; absent without an estimate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset_ns: Option<i64>,
    /// Error bound of the offset, including the root distance, in nanoseconds; absent without an
    /// estimate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncertainty_ns: Option<i64>,
    /// Stratum of a server that follows the source; absent without an estimate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stratum: Option<u8>,
    /// Age of the last estimate, in milliseconds; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_ms: Option<i64>,
    /// Reason why the source is unresponsive or unusable; absent in other states.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Estimates rejected because their time was implausible, by reason.
    #[serde(default, skip_serializing_if = "NamedCounts::is_empty")]
    pub rejected: NamedCounts,
}

/// Result of polling all sources once.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct SelectorPollOutcome {
    /// Estimate to serve; `None` if no source, or no majority, reports the time.
    pub selected: Option<SourceEstimate>,
    /// UTC minus the monotonic clock by the selected source, if confirmed: by another source, when
    /// not both merely repeat the system clock, or by the operator.
    pub confirmed: Option<Span>,
    /// State of each source, in configuration order.
    pub states: Vec<SourceStatus>,
    /// Notices of changes, one line each.
    pub notices: Vec<String>,
}

struct PolledSource {
    source: Box<dyn PollableTimeSource>,
    report: Option<SourceEstimate>,
    /// UTC minus the monotonic clock by the last estimate.
    utc_minus_monotonic: Span,
    error: Option<SourceError>,
    judge: PlausibilityJudge,
    /// Reason why the time of the last estimate is implausible; `None` if it is plausible, or there
    /// is no recent estimate.
    implausibility: Option<ImplausibilityReason>,
    /// Clock of this host that confirms the time and that the source does not merely repeat; `None`
    /// if there is none.
    host_clock: Option<Span>,
    rejected: NamedCounts,
    /// True if the last poll returned an estimate.
    is_new: bool,
    /// Instant of the first poll; `None` before it.
    first_polled: Option<Timestamp<Monotonic>>,
    /// State in the last round; `None` while the first estimate is awaited.
    state: Option<SelectionState>,
}

/// Sources of a server with their states.
pub struct SourceSelector {
    members: Vec<PolledSource>,
    selected: Option<String>,
    /// Times accepted by the operator since the last round, with the source.
    accepted: Vec<(String, Span)>,
}

impl std::fmt::Debug for SourceSelector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.members.iter().map(|member| member.source.name())).finish()
    }
}

impl SourceSelector {
    /// Creates a selector of these sources, with these limits of plausible times.
    #[must_use]
    pub fn new(
        sources: Vec<Box<dyn PollableTimeSource>>,
        basis: PlausibilityRuleParameters,
    ) -> Self {
        let members = sources.into_iter().map(|source| PolledSource::new(source, basis)).collect();
        Self { members, selected: None, accepted: Vec::new() }
    }

    /// Accepts the times that are implausible at present, on the operator's command.
    pub fn accept(&mut self) {
        let accept = |member: &mut PolledSource| {
            member.judge.accept_unconfirmed().map(|ahead| (member.source.name().to_owned(), ahead))
        };
        self.accepted.extend(self.members.iter_mut().filter_map(accept));
    }

    /// Returns true if there are no sources.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Polls every source and selects. `read_clocks` is called for each source.
    pub fn poll(&mut self, read_clocks: impl Fn() -> ClockReadings) -> SelectorPollOutcome {
        for member in &mut self.members {
            member.poll(&read_clocks());
        }
        let last = read_clocks();
        let now = last.monotonic;
        self.judge_times(&last);
        let participants: Vec<_> = (0..self.members.len())
            .filter(|&index| self.members[index].is_candidate(now))
            .collect();
        let states = self.select_source(&participants, now);
        let mut notices: Vec<_> = self
            .accepted
            .drain(..)
            .map(|(name, ahead)| {
                let date = Date(Timestamp::from_ns(now.as_ns().saturating_add(ahead.as_ns())));
                format!("the operator accepted the time of {name}, which reports {date}")
            })
            .collect();
        notices.extend(self.notices(&states, now));
        for (member, standing) in self.members.iter_mut().zip(&states) {
            member.state = Some(*standing).filter(|_| !member.is_awaited(now));
            member.source.selection_changed(*standing);
        }
        let selected = self.members.iter().find(|one| one.state == Some(SelectionState::Selected));
        self.selected = selected.map(|member| member.source.name().to_owned());
        SelectorPollOutcome {
            selected: selected.and_then(PolledSource::judged_estimate),
            confirmed: selected
                .filter(|member| {
                    member.judge.is_accepted(member.utc_minus_monotonic) || self.confirm(member)
                })
                .map(|member| member.utc_minus_monotonic),
            states: self.members.iter().map(|member| member.source_state(now)).collect(),
            notices,
        }
    }

    /// Judges the time of each source against the system clock and the other sources. Sources that
    /// merely repeat the system clock count as one.
    fn judge_times(&mut self, readings: &ClockReadings) {
        let now = readings.monotonic;
        let claim = |member: &PolledSource| {
            member
                .is_fresh(now)
                .then(|| (member.utc_minus_monotonic, member.source.is_system_clock_mirror()))
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
            member.judge_time(&PlausibilityEvidence { now, system, others: &others });
        }
    }

    /// Returns the system clock as UTC minus the monotonic clock; `None` if an unconfirmed source
    /// has set it.
    fn system_clock(&self, readings: &ClockReadings) -> Option<Span> {
        let system = readings.realtime_minus_monotonic;
        let mut set =
            self.members.iter().filter_map(|member| member.source.unconfirmed_clock_setting());
        (!set.any(|ahead| is_within_a_day(ahead, system))).then_some(system)
    }

    /// Returns true if another source confirms the time of the selected one.
    fn confirm(&self, selected: &PolledSource) -> bool {
        self.members.iter().any(|member| {
            let apart =
                (member.utc_minus_monotonic - selected.utc_minus_monotonic).as_ns().unsigned_abs();
            member.state == Some(SelectionState::Truechimer)
                && apart <= JUMP_MAX.as_ns().unsigned_abs()
                && !(member.source.is_system_clock_mirror()
                    && selected.source.is_system_clock_mirror())
        })
    }

    fn select_source(&self, voters: &[usize], now: Timestamp<Monotonic>) -> Vec<SelectionState> {
        let candidate = |&index: &usize| {
            let PolledSource { source, report, .. } = &self.members[index];
            report.map(|report| SelectionCandidate { name: source.name(), report })
        };
        let candidates: Vec<_> = voters.iter().filter_map(candidate).collect();
        let result = select(&candidates, self.selected.as_deref(), now);
        let mut standings: Vec<_> =
            self.members.iter().map(PolledSource::state_without_vote).collect();
        // An implausible time takes part, but is not served unless other sources confirm it.
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
            let before = member.state;
            if before != Some(standing) && !member.is_awaited(now) {
                notices.extend(member.notice(standing, now));
            }
        }
        let is_undecided =
            |standing: Option<&SelectionState>| standing == Some(&SelectionState::Undecided);
        let was_split = self.members.iter().any(|member| is_undecided(member.state.as_ref()));
        if standings.iter().any(|standing| is_undecided(Some(standing))) && !was_split {
            notices.push(self.disagreement_notice(standings, now));
        }
        let is_available = |one: &SelectionState| {
            matches!(one, SelectionState::Selected | SelectionState::Undecided)
        };
        let is_awaited = self.members.iter().any(|member| member.is_awaited(now));
        let is_none_available = !is_awaited && !standings.iter().any(is_available);
        let was_none_available =
            self.members.iter().all(|member| member.state.is_some_and(|one| !is_available(&one)));
        if is_none_available && !was_none_available {
            let has_no_report = self.members.iter().all(|member| member.report.is_none());
            let availability =
                if has_no_report { "is available yet" } else { "is available any more" };
            notices
                .push(format!("no time source {availability}; all replies report unsynchronised"));
        }
        notices
    }

    fn disagreement_notice(
        &self,
        standings: &[SelectionState],
        now: Timestamp<Monotonic>,
    ) -> String {
        let claim = |(member, standing): (&PolledSource, &SelectionState)| match member.report {
            Some(report) if *standing == SelectionState::Undecided => {
                Some(format!("{} reports that {}", member.source.name(), offset_text(&report, now)))
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

/// Formats the offset of the system clock with its error bound, to two significant digits of the
/// bound.
fn offset_text(report: &SourceEstimate, now: Timestamp<Monotonic>) -> String {
    let ahead_s = -report.offset_at(now).as_seconds();
    let distance_s = report.root_distance_at(now).as_seconds();
    let digits = (1.0 - distance_s.max(1e-9).log10().floor()).clamp(0.0, 9.0) as usize;
    format!("the system clock is ahead by {ahead_s:+.digits$} s (±{distance_s:.digits$} s)")
}

impl PolledSource {
    fn new(mut source: Box<dyn PollableTimeSource>, basis: PlausibilityRuleParameters) -> Self {
        source.judge_by(basis);
        Self {
            source,
            report: None,
            utc_minus_monotonic: Span::ZERO,
            error: None,
            judge: PlausibilityJudge::new(basis),
            implausibility: None,
            host_clock: None,
            rejected: NamedCounts::default(),
            is_new: false,
            first_polled: None,
            state: None,
        }
    }

    /// Judges the time of the last estimate.
    fn judge_time(&mut self, evidence: &PlausibilityEvidence<'_>) {
        self.implausibility = self.judge.judge(evidence, self.utc_minus_monotonic).err();
        self.host_clock = self
            .judge
            .confirming_host_clock(evidence, self.utc_minus_monotonic)
            .filter(|_| !self.source.is_system_clock_mirror());
        match (self.implausibility, self.judge.support()) {
            (None, Some(support)) => self.source.vouch(self.utc_minus_monotonic, support),
            (Some(reason), _) if self.is_new => self.rejected.add(reason.name()),
            _ => {}
        }
    }

    /// Returns the last estimate, with `is_unconfirmed` and `host_clock` as judged; `None` before
    /// the first.
    fn judged_estimate(&self) -> Option<SourceEstimate> {
        let is_unconfirmed = self.judge.support() == Some(PlausibilityReason::Unopposed);
        self.report.map(|report| SourceEstimate {
            is_unconfirmed,
            host_clock: self.host_clock,
            ..report
        })
    }

    /// Returns true if the first estimate is still awaited.
    fn is_awaited(&self, now: Timestamp<Monotonic>) -> bool {
        let is_young =
            self.first_polled.is_some_and(|first_polled| now - first_polled < FIRST_REPORT_TIMEOUT);
        is_young && self.report.is_none() && self.error.is_none()
    }

    fn poll(&mut self, readings: &ClockReadings) {
        self.first_polled.get_or_insert(readings.monotonic);
        let result = self.source.poll(readings);
        self.is_new = matches!(result, Ok(Some(_)));
        match result {
            Ok(Some(report)) => {
                self.error = (report.leap == LeapIndicator::Unsynchronised).then(|| {
                    SourceError::Unusable("it reports that it is not synchronised".into())
                });
                self.report = Some(report);
                self.utc_minus_monotonic = report.offset + readings.realtime_minus_monotonic;
            }
            Ok(None) => {}
            Err(fault) => {
                if matches!(fault, SourceError::Unusable(_)) {
                    self.report = None;
                }
                self.error = Some(fault);
            }
        }
    }

    /// Returns true if there is a synchronised estimate at `now` that is recent.
    fn is_fresh(&self, now: Timestamp<Monotonic>) -> bool {
        let fresh = |report: &SourceEstimate| {
            report.leap != LeapIndicator::Unsynchronised && now - report.at <= REPORT_AGE_MAX
        };
        self.report.as_ref().is_some_and(fresh)
    }

    /// Returns true if the last estimate takes part in the selection.
    fn is_candidate(&self, now: Timestamp<Monotonic>) -> bool {
        self.is_fresh(now) && self.implausibility.is_none_or(ImplausibilityReason::is_confirmable)
    }

    fn state_without_vote(&self) -> SelectionState {
        match (&self.error, self.implausibility) {
            (Some(SourceError::Unusable(_)), _) | (_, Some(_)) => SelectionState::Unusable,
            _ => SelectionState::Unresponsive,
        }
    }

    fn reason(&self) -> String {
        match (self.implausibility, &self.error) {
            (Some(implausibility), _) => rejection_text(implausibility),
            (None, Some(fault)) => fault.to_string(),
            (None, None) => "no data received from it".into(),
        }
    }

    fn notice(&self, standing: SelectionState, now: Timestamp<Monotonic>) -> Option<String> {
        let name = self.source.name();
        let claim = || self.report.map(|report| offset_text(&report, now)).unwrap_or_default();
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

    fn source_state(&self, now: Timestamp<Monotonic>) -> SourceStatus {
        let state = self.state.unwrap_or(SelectionState::Unresponsive);
        let report = self.report.as_ref();
        let is_unusable = matches!(state, SelectionState::Unresponsive | SelectionState::Unusable);
        SourceStatus {
            name: self.source.name().to_owned(),
            state,
            offset_ns: report.map(|report| report.offset_at(now).as_ns().saturating_neg()),
            uncertainty_ns: report.map(|report| report.root_distance_at(now).as_ns()),
            stratum: report.map(|report| report.stratum),
            age_ms: report.map(|report| (now - report.at).as_ns() / 1_000_000),
            reason: is_unusable.then(|| self.reason()),
            rejected: self.rejected.clone(),
        }
    }
}

/// Describes why a time is rejected, with the command by which the operator can accept it, if
/// possible.
fn rejection_text(implausibility: ImplausibilityReason) -> String {
    if !implausibility.is_confirmable() {
        return implausibility.to_string();
    }
    let pid = std::process::id();
    format!("{implausibility}; if it is right, confirm it with: kill -HUP {pid}")
}

#[cfg(test)]
mod tests;
