//! All sources of a server together: asks each, keeps what it said last until that is too old,
//! votes, and tells what has changed. It says each thing once, when it comes to be, and not again
//! while it lasts.

use horolog_time::{Monotonic, NS_PER_S, Span, Timestamp};
use horolog_wire::ntp::Leap;
use serde::Serialize;

use crate::{Candidate, Fault, JUMP_MAX, Look, Report, Source, vote};

/// How long a report holds when no newer one comes.
pub const STALE: Span = Span::from_ns(8 * NS_PER_S);

/// How long a source that has said nothing yet, and of which nothing is wrong, is waited for before
/// it is called silent: a receiver's first sentences have to agree.
pub const FIRST_WORD: Span = Span::from_ns(12 * NS_PER_S);

/// What a source counts for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// Its time is served.
    Selected,
    /// It agrees with the majority.
    Truechimer,
    /// It contradicts the majority.
    Falseticker,
    /// It contradicts others, and there is no majority.
    Undecided,
    /// It has said nothing for too long.
    Silent,
    /// It says that it is not synchronised, or nothing that can be used.
    Unusable,
}

/// A source as the status shows it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct SourceState {
    /// Its name.
    pub name: String,
    /// What it counts for.
    pub state: Standing,
    /// How far the system clock is ahead of true time, as it says, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset_ns: Option<i64>,
    /// How far that may be wrong, root distance included, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncertainty_ns: Option<i64>,
    /// The stratum to claim when following it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stratum: Option<u8>,
    /// How old what it said is, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_ms: Option<i64>,
    /// Why it is not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What came of asking all sources once.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Round {
    /// What to serve; `None` when no source, or no majority, says the time.
    pub selected: Option<Report>,
    /// True time minus the monotonic clock as the selected source says, where another one says it
    /// too and one of the two is no mirror of the system clock.
    pub confirmed: Option<Span>,
    /// Each source, in the order in which they were given.
    pub states: Vec<SourceState>,
    /// What has changed, each in one line for the user.
    pub notices: Vec<String>,
}

struct Member {
    source: Box<dyn Source>,
    report: Option<Report>,
    /// What the last report says of true time minus the monotonic clock.
    ahead: Span,
    fault: Option<Fault>,
    /// When it was asked first.
    asked: Option<Timestamp<Monotonic>>,
    /// What it counted for in the last round; `None` while its first word is awaited.
    standing: Option<Standing>,
}

/// The sources of a server.
pub struct Panel {
    members: Vec<Member>,
    selected: Option<String>,
}

impl std::fmt::Debug for Panel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.members.iter().map(|member| member.source.name())).finish()
    }
}

impl Panel {
    /// A panel of these sources.
    #[must_use]
    pub fn new(sources: Vec<Box<dyn Source>>) -> Self {
        let members = sources.into_iter().map(Member::new).collect();
        Self { members, selected: None }
    }

    /// Whether there is no source at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Asks every source and votes. `look` looks at the clocks, anew for each source.
    pub fn poll(&mut self, look: impl Fn() -> Look) -> Round {
        for member in &mut self.members {
            member.poll(&look());
        }
        let now = look().monotonic;
        let voters: Vec<_> =
            (0..self.members.len()).filter(|&index| self.members[index].votes(now)).collect();
        let standings = self.vote(&voters, now);
        let notices = self.notices(&standings, now);
        for (member, standing) in self.members.iter_mut().zip(&standings) {
            member.standing = Some(*standing).filter(|_| !member.is_awaited(now));
            member.source.judged(*standing);
        }
        let selected = self.members.iter().find(|one| one.standing == Some(Standing::Selected));
        self.selected = selected.map(|member| member.source.name().to_owned());
        Round {
            selected: selected.and_then(|member| member.report),
            confirmed: selected.filter(|member| self.confirm(member)).map(|member| member.ahead),
            states: self.members.iter().map(|member| member.state(now)).collect(),
            notices,
        }
    }

    /// Whether another source says the time that the selected one says.
    fn confirm(&self, selected: &Member) -> bool {
        self.members.iter().any(|member| {
            let apart = (member.ahead - selected.ahead).as_ns().unsigned_abs();
            member.standing == Some(Standing::Truechimer)
                && apart <= JUMP_MAX.as_ns().unsigned_abs()
                && !(member.source.is_mirror() && selected.source.is_mirror())
        })
    }

    fn vote(&self, voters: &[usize], now: Timestamp<Monotonic>) -> Vec<Standing> {
        let candidate = |&index: &usize| {
            let Member { source, report, .. } = &self.members[index];
            report.map(|report| Candidate { name: source.name(), report })
        };
        let candidates: Vec<_> = voters.iter().filter_map(candidate).collect();
        let result = vote(&candidates, self.selected.as_deref(), now);
        let mut standings: Vec<_> = self.members.iter().map(Member::absence).collect();
        for (position, &index) in voters.iter().enumerate() {
            standings[index] = match result.selected {
                None => Standing::Undecided,
                Some(selected) if selected == position => Standing::Selected,
                Some(_) if result.truechimers.contains(&position) => Standing::Truechimer,
                Some(_) => Standing::Falseticker,
            };
        }
        standings
    }

    fn notices(&self, standings: &[Standing], now: Timestamp<Monotonic>) -> Vec<String> {
        let mut notices = Vec::new();
        for (member, &standing) in self.members.iter().zip(standings) {
            let before = member.standing;
            if before != Some(standing) && !member.is_awaited(now) {
                notices.extend(member.notice(standing, now));
            }
        }
        let split = |standing: Option<&Standing>| standing == Some(&Standing::Undecided);
        let was_split = self.members.iter().any(|member| split(member.standing.as_ref()));
        if standings.iter().any(|standing| split(Some(standing))) && !was_split {
            notices.push(self.disagreement(standings, now));
        }
        let tells = |one: &Standing| matches!(one, Standing::Selected | Standing::Undecided);
        let is_awaited = self.members.iter().any(|member| member.is_awaited(now));
        let is_nobody = !is_awaited && !standings.iter().any(tells);
        let was_nobody =
            self.members.iter().all(|member| member.standing.is_some_and(|one| !tells(&one)));
        if is_nobody && !was_nobody {
            let never = self.members.iter().all(|member| member.report.is_none());
            let what = if never { "tells the time yet" } else { "is left" };
            notices.push(format!("no source of time {what}; all replies say unsynchronised"));
        }
        notices
    }

    fn disagreement(&self, standings: &[Standing], now: Timestamp<Monotonic>) -> String {
        let claim = |(member, standing): (&Member, &Standing)| match member.report {
            Some(report) if *standing == Standing::Undecided => {
                Some(format!("{} says {}", member.source.name(), claim(&report, now)))
            }
            _ => None,
        };
        let claims: Vec<_> = self.members.iter().zip(standings).filter_map(claim).collect();
        format!(
            "the sources of time disagree and none has a majority: {}; all replies say \
             unsynchronised until they agree or a --source more decides",
            claims.join(", ")
        )
    }
}

/// An offset with its bounds, in words, of the sign that it has wherever it is told and with the
/// two digits that its bounds leave.
fn claim(report: &Report, now: Timestamp<Monotonic>) -> String {
    let ahead_s = -report.offset_at(now).as_seconds();
    let distance_s = report.distance_at(now).as_seconds();
    let digits = (1.0 - distance_s.max(1e-9).log10().floor()).clamp(0.0, 9.0) as usize;
    format!("the system clock is ahead by {ahead_s:+.digits$} s (±{distance_s:.digits$} s)")
}

impl Member {
    const fn new(source: Box<dyn Source>) -> Self {
        let (report, ahead, fault, asked, standing) = (None, Span::ZERO, None, None, None);
        Self { source, report, ahead, fault, asked, standing }
    }

    /// Whether it has not said anything yet and may still be about to.
    fn is_awaited(&self, now: Timestamp<Monotonic>) -> bool {
        let is_young = self.asked.is_some_and(|asked| now - asked < FIRST_WORD);
        is_young && self.report.is_none() && self.fault.is_none()
    }

    fn poll(&mut self, look: &Look) {
        self.asked.get_or_insert(look.monotonic);
        match self.source.poll(look) {
            Ok(Some(report)) => {
                self.fault = (report.leap == Leap::Unsynchronised)
                    .then(|| Fault::Unusable("it says that it is not synchronised".into()));
                self.report = Some(report);
                self.ahead = report.offset + look.realtime_minus_monotonic;
            }
            Ok(None) => {}
            Err(fault) => {
                if matches!(fault, Fault::Unusable(_)) {
                    self.report = None;
                }
                self.fault = Some(fault);
            }
        }
    }

    /// Whether it has something to say at `now` that is neither old nor refused.
    fn votes(&self, now: Timestamp<Monotonic>) -> bool {
        let fresh =
            |report: &Report| report.leap != Leap::Unsynchronised && now - report.at <= STALE;
        self.report.as_ref().is_some_and(fresh)
    }

    fn absence(&self) -> Standing {
        match self.fault {
            Some(Fault::Unusable(_)) => Standing::Unusable,
            _ => Standing::Silent,
        }
    }

    fn reason(&self) -> String {
        self.fault.as_ref().map_or("nothing came from it".into(), ToString::to_string)
    }

    fn notice(&self, standing: Standing, now: Timestamp<Monotonic>) -> Option<String> {
        let name = self.source.name();
        let claim = || self.report.map(|report| claim(&report, now)).unwrap_or_default();
        match standing {
            Standing::Selected => Some(format!("following the source {name}: {}", claim())),
            Standing::Falseticker => Some(format!(
                "the source {name} is voted out: it says {}, which contradicts the majority",
                claim()
            )),
            Standing::Silent => Some(format!("the source {name} is silent: {}", self.reason())),
            Standing::Unusable => {
                Some(format!("the source {name} cannot be used: {}", self.reason()))
            }
            Standing::Truechimer | Standing::Undecided => None,
        }
    }

    fn state(&self, now: Timestamp<Monotonic>) -> SourceState {
        let state = self.standing.unwrap_or(Standing::Silent);
        let report = self.report.as_ref();
        let idle = matches!(state, Standing::Silent | Standing::Unusable);
        SourceState {
            name: self.source.name().to_owned(),
            state,
            offset_ns: report.map(|report| report.offset_at(now).as_ns().saturating_neg()),
            uncertainty_ns: report.map(|report| report.distance_at(now).as_ns()),
            stratum: report.map(|report| report.stratum),
            age_ms: report.map(|report| (now - report.at).as_ns() / 1_000_000),
            reason: idle.then(|| self.reason()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::report::tests::report;

    type Script = Arc<Mutex<Result<Option<Report>, Fault>>>;

    type Judged = Arc<Mutex<Vec<Standing>>>;

    /// The first of them mirrors the system clock.
    struct Scripted(&'static str, Script, Judged);

    impl Source for Scripted {
        fn name(&self) -> &str {
            self.0
        }

        fn poll(&mut self, look: &Look) -> Result<Option<Report>, Fault> {
            let said = self.1.lock().unwrap().clone();
            said.map(|report| report.map(|report| Report { at: look.monotonic, ..report }))
        }

        fn judged(&mut self, standing: Standing) {
            self.2.lock().unwrap().push(standing);
        }

        fn is_mirror(&self) -> bool {
            self.0 == "a"
        }
    }

    struct Bench {
        panel: Panel,
        scripts: Vec<Script>,
        judged: Judged,
        now: Rc<Cell<i64>>,
    }

    impl Bench {
        fn new(offsets: &[i64]) -> Self {
            let script = |&offset: &i64| Arc::new(Mutex::new(Ok(Some(report(offset, 1_000)))));
            let scripts: Vec<Script> = offsets.iter().map(script).collect();
            let judged = Judged::default();
            let source = |(name, script): (&'static str, &Script)| -> Box<dyn Source> {
                Box::new(Scripted(name, Arc::clone(script), Arc::clone(&judged)))
            };
            let sources = ["a", "b", "c"].into_iter().zip(&scripts).map(source).collect();
            Self { panel: Panel::new(sources), scripts, judged, now: Rc::default() }
        }

        fn say(&self, index: usize, said: Result<Option<Report>, Fault>) {
            *self.scripts[index].lock().unwrap() = said;
        }

        /// The next second.
        fn round(&mut self) -> Round {
            self.now.set(self.now.get() + NS_PER_S);
            let monotonic = Timestamp::from_ns(self.now.get());
            let realtime_minus_monotonic = Span::ZERO;
            self.panel.poll(|| Look {
                monotonic,
                realtime_minus_monotonic,
                kernel: None,
                leaps_s: 0,
                leaps: crate::KnownLeaps::default(),
            })
        }
    }

    fn standings(round: &Round) -> Vec<Standing> {
        round.states.iter().map(|state| state.state).collect()
    }

    #[test]
    fn a_source_is_not_called_silent_before_it_had_its_time() {
        let mut bench = Bench::new(&[0]);
        bench.say(0, Ok(None));
        for _ in 0..12 {
            let round = bench.round();
            assert_eq!((standings(&round), round.notices), (vec![Standing::Silent], vec![]));
        }
        let told = bench.round().notices;
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].contains("is silent") && told[1].contains("tells the time yet"));
        assert_eq!(bench.round().notices, [""; 0]);
        // What is wrong from the start is said at once.
        let mut bench = Bench::new(&[0]);
        bench.say(0, Err(Fault::Silent("no answer".into())));
        assert_eq!(bench.round().notices.len(), 2);
    }

    #[test]
    fn the_system_clock_is_ahead_where_it_is_to_be_set_back() {
        let round = Bench::new(&[-250]).round();
        assert_eq!(round.states[0].offset_ns, Some(250));
        let at = Timestamp::from_ns(0);
        let said = |offset, uncertainty| claim(&Report { at, ..report(offset, uncertainty) }, at);
        let coarse = said(449_628_575, 500_010_357);
        assert_eq!(coarse, "the system clock is ahead by -0.45 s (±0.50 s)");
        assert!(said(-1_234, 96).contains("by +0.000001234 s (±0.000000096 s)"));
    }

    #[test]
    fn a_liar_is_named_once() {
        let mut bench = Bench::new(&[0, 100, 5_000_000]);
        let round = bench.round();
        let expected = [Standing::Selected, Standing::Truechimer, Standing::Falseticker];
        assert_eq!(standings(&round), expected);
        assert_eq!(*bench.judged.lock().unwrap(), expected, "each is told");
        assert_eq!(round.notices.len(), 2, "{:?}", round.notices);
        assert!(round.notices[1].contains("source c is voted out"), "{:?}", round.notices);
        assert_eq!(bench.round().notices, [""; 0]);
    }

    #[test]
    fn a_time_is_confirmed_by_another_source_that_says_it() {
        let year = 31_557_600 * NS_PER_S;
        let mut bench = Bench::new(&[year, year + 100]);
        assert_eq!(bench.round().confirmed, Some(Span::from_ns(year)));
        assert_eq!(Bench::new(&[year]).round().confirmed, None);
        assert_eq!(Bench::new(&[year, 0]).round().confirmed, None);
        bench.panel.members.truncate(1);
        let mirror = Scripted("a", Arc::clone(&bench.scripts[0]), Judged::default());
        bench.panel.members.extend(Panel::new(vec![Box::new(mirror)]).members);
        let round = bench.round();
        assert_eq!(standings(&round), [Standing::Selected, Standing::Truechimer]);
        assert_eq!(round.confirmed, None, "both repeat the system clock");
    }

    #[test]
    fn two_that_disagree_are_both_named_once_and_nothing_is_selected() {
        let mut bench = Bench::new(&[0, 5_000_000]);
        let round = bench.round();
        assert_eq!(round.selected, None);
        assert_eq!(round.notices.len(), 1, "{:?}", round.notices);
        let told = &round.notices[0];
        assert!(told.contains("a says the system clock") && told.contains("b says"), "{told}");
        assert_eq!(bench.round().notices, [""; 0]);
        bench.say(1, Ok(Some(report(0, 1_000))));
        assert!(bench.round().selected.is_some());
        bench.say(1, Ok(Some(report(5_000_000, 1_000))));
        assert_eq!(bench.round().notices.len(), 1, "said again when it comes again");
    }

    #[test]
    fn a_silent_source_drops_out_when_it_is_stale_and_an_unsynchronised_one_at_once() {
        let mut bench = Bench::new(&[0, 100]);
        bench.round();
        bench.say(0, Err(Fault::Silent("no answer".into())));
        for _ in 0..8 {
            assert_ne!(standings(&bench.round())[0], Standing::Silent);
        }
        let round = bench.round();
        assert_eq!(standings(&round), [Standing::Silent, Standing::Selected]);
        assert_eq!(round.states[0].reason.as_deref(), Some("no answer"));
        bench.say(1, Ok(Some(Report { leap: Leap::Unsynchronised, ..report(0, 1) })));
        let round = bench.round();
        assert_eq!((round.selected, standings(&round)[1]), (None, Standing::Unusable));
        assert!(round.notices.last().is_some_and(|text| text.starts_with("no source")));
        assert_eq!(bench.round().notices, [""; 0]);
    }
}
