//! How served time goes on through a leap second while the system clock does what it does: steps in
//! time, steps late, or not at all. Pure: it is told of each look at the clocks and keeps what has
//! to be remembered from one to the next.
//!
//! From three seconds before a leap until five seconds after it, the leap is *being passed*: time
//! is counted on the scale before the leap, and a step of the system clock by the second is taken
//! off what is read. So it does not matter when that step comes; the time served steps where the
//! page says, which is exact. A source that measures the clock learns of a second that it did not
//! make: then the second is in what the source says, and is taken off that, or not owed any more.

use horolog_sys::adjtimex::{KernelClock, PendingLeap};
use horolog_sys::clock::ClockOffset;
use horolog_time::leap::{Leap, LeapKind, LeapList, Outlook, Sources, Validity};
use horolog_time::{Monotonic, NS_PER_S, Span, Timestamp, Utc};

use crate::clock::STEP_MIN;
use crate::config::LeapSystem;
use crate::leap_notice::LeapNotice;
use crate::renewal::Reading;

/// A page made earlier than this before a leap has expired when it comes.
const PASSING_BEFORE: Span = Span::from_ms(3_000);
/// No page nor receive timestamp from before a leap is used so long after it.
const PASSING_AFTER: Span = Span::from_ms(5_000);
/// Two steps that differ by less are taken for the same one.
const SAME_STEP: Span = Span::from_ms(250);
/// How long a kernel that was told of the leap may take to step: its timer tick, with much room.
const PATIENCE_WITH_KERNEL: Span = Span::from_ms(2_000);
/// How long a daemon that steps the clock itself may take.
const PATIENCE_WITH_DAEMON: Span = Span::from_ms(500);
/// After this a clock that was not stepped has been slewed right, or its daemon says otherwise.
const DOUBT: Span = Span::from_ms(3_600_000);

/// What the course of time depends on, beside the readings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms<'a> {
    /// What the system clock does at a leap.
    pub(crate) system: LeapSystem,
    /// Whether somebody keeps the system clock right, who will make up for a leap as well.
    pub(crate) disciplined: bool,
    /// Whether the kernel's word on leap seconds counts: not while another time is served than that
    /// of the system clock.
    pub(crate) ask_kernel: bool,
    /// How far the served time is ahead of the system clock on purpose, or by a source.
    pub(crate) ahead: Span,
    /// When the source said it by whose word that is.
    pub(crate) heard_at: Option<Timestamp<Monotonic>>,
    /// The list of leap seconds.
    pub(crate) list: Option<&'a LeapList>,
    /// The next leap second by the word of a receiver, which counts where there is no list.
    pub(crate) told: Option<Leap>,
}

/// What a look at the clocks came to.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    /// The time to serve; on the scale before the leap while one is being passed.
    pub(crate) utc: Timestamp<Utc>,
    /// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC`, without a step since a leap that is being passed.
    pub(crate) realtime_minus_monotonic: Span,
    /// The leap that is being passed.
    pub(crate) passing: Option<Leap>,
    /// The next leap, announced or not.
    pub(crate) next: Option<Leap>,
    /// The last leap.
    pub(crate) latest: Option<Leap>,
    /// The leap to announce, before its step.
    pub(crate) announced: Option<Leap>,
    /// The system clock did not step, so nobody knows what it shows.
    pub(crate) doubtful: bool,
    /// What to warn of, as long as it lasts.
    pub(crate) notices: Vec<LeapNotice>,
}

#[derive(Clone, Copy, Debug)]
struct Passing {
    leap: Leap,
    /// Whether the system clock was seen to have stepped.
    stepped: bool,
    patience: Span,
}

/// The state that is kept from look to look.
#[derive(Debug)]
pub(crate) struct Course {
    offset: ClockOffset,
    /// The step that served time has made and the system clock has not.
    owed: Span,
    /// The step that is in what the source says and is taken off it: it is yet to come on the scale
    /// of a leap that is being passed, or the clock has made it since.
    learnt: Span,
    /// What the source said last of how far the clock is off.
    heard: Option<Span>,
    /// When the word of the last look was said, and how far the clock has been set since.
    heard_at: Option<Timestamp<Monotonic>>,
    set: Span,
    /// The steps of the leaps that were passed before the one that is being passed.
    passed: Span,
    /// Leaps up to here are past.
    reached: Option<Timestamp<Utc>>,
    passing: Option<Passing>,
    latest: Option<Leap>,
    doubted_until: Option<Timestamp<Monotonic>>,
    /// The kernel still speaks of the leap that is past: its flag stays until somebody clears it.
    kernel_is_stale: bool,
}

impl Course {
    pub(crate) fn new(offset: ClockOffset) -> Self {
        Self {
            offset,
            owed: Span::ZERO,
            learnt: Span::ZERO,
            heard: None,
            heard_at: None,
            set: Span::ZERO,
            passed: Span::ZERO,
            reached: None,
            passing: None,
            latest: None,
            doubted_until: None,
            kernel_is_stale: false,
        }
    }

    /// How many leap seconds have been passed since the start, the present one from its instant on.
    pub(crate) fn leaps_s(&self) -> i32 {
        let present = self.passing.map(|passing| passing.leap);
        let begun = present.filter(|leap| self.reached.is_some_and(|utc| utc >= leap.instant()));
        let steps = self.passed + begun.map_or(Span::ZERO, |leap| leap.step());
        (-steps.as_ns() / NS_PER_S) as i32
    }

    /// The same, with the present one only when it has been passed wholly.
    pub(crate) fn passed_s(&self) -> i32 {
        (-self.passed.as_ns() / NS_PER_S) as i32
    }

    /// Goes on to the instant of a reading.
    pub(crate) fn advance(&mut self, reading: &Reading, terms: &Terms<'_>) -> Point {
        let shown = self.offset.offset + self.owed;
        self.take(reading, terms);
        self.keep_word(self.offset.offset + self.owed - shown, terms);
        self.learn(reading, terms);
        if self.doubted_until.is_some_and(|until| reading.now >= until) {
            (self.doubted_until, self.owed) = (None, Span::ZERO);
            self.reached = None;
        }
        let utc = self.utc(reading.now, terms);
        let reached = self.reached.map_or(utc, |reached| reached.min(utc));
        self.begin(reading, terms, utc);
        let kernel = self.kernel(reading, terms);
        let mut outlook = Outlook { next: None, discord: None };
        if terms.system != LeapSystem::Smears {
            let kernel_should_know = terms.ask_kernel && terms.disciplined;
            let sources = Sources { list: terms.list, kernel, kernel_should_know };
            outlook = Outlook::new(&sources, reached);
            let is_listed = terms.list.is_some_and(|list| list.validity(utc) != Validity::Expired);
            let told = terms.told.filter(|leap| !is_listed && leap.instant() > reached);
            outlook.next = outlook.next.or(told).filter(|leap| Some(*leap) != self.latest);
        }
        if self.passing.is_none() {
            self.passing = outlook
                .next
                .filter(|leap| leap.instant() - utc <= PASSING_BEFORE)
                .map(|leap| Passing { leap, stepped: false, patience: patience(terms, kernel) });
        }
        self.finish(utc, reading, terms);
        self.point(reading, terms, &outlook)
    }

    /// Where it begins in an inserted second, that is made already, though its instant comes again.
    fn begin(&mut self, reading: &Reading, terms: &Terms<'_>, utc: Timestamp<Utc>) {
        let is_in_it = reading.kernel.as_ref().is_some_and(|kernel| kernel.is_leap_second);
        if is_in_it && terms.ask_kernel && self.reached.is_none() {
            self.latest = Some(Leap::at_end_of_day(utc, LeapKind::Insert));
        }
    }

    /// Takes the measured offset in, without the step of a leap that is being passed.
    fn take(&mut self, reading: &Reading, terms: &Terms<'_>) {
        let jump = reading.offset.offset - self.offset.offset;
        let mut offset = reading.offset;
        if let Some(passing) = &mut self.passing {
            let (leap, step) = (passing.leap, passing.leap.step());
            let utc = Timestamp::<Utc>::from_ns(reading.now.as_ns())
                + self.offset.offset
                + self.owed
                + self.heard.filter(|_| terms.heard_at.is_some()).unwrap_or(terms.ahead)
                - self.learnt;
            let is_due = utc + SAME_STEP >= leap.instant();
            passing.stepped = is_due && is(jump, step);
            if passing.stepped {
                offset.offset = offset.offset - step;
            } else if !is(jump, Span::ZERO) {
                // Somebody set the clock to something else, and knew of the leap or not.
                if utc >= leap.instant() {
                    self.passed = self.passed + step;
                }
                (self.passing, self.owed, self.reached) = (None, Span::ZERO, None);
                self.learnt = Span::ZERO;
            }
        } else if !is(jump, Span::ZERO) {
            // The step that was owed has come, or another one that makes up for it as well.
            (self.owed, self.doubted_until, self.reached) = (Span::ZERO, None, None);
        }
        self.offset = self.offset.follow(offset);
    }

    /// What was said of how far the clock is off holds of the clock as it was then, whoever has
    /// moved it since, until something new is said.
    fn keep_word(&mut self, moved: Span, terms: &Terms<'_>) {
        let before = std::mem::replace(&mut self.heard_at, terms.heard_at);
        if before != terms.heard_at {
            self.set = Span::ZERO;
        } else if before.is_some()
            && moved.as_ns().unsigned_abs() >= STEP_MIN.as_ns().unsigned_abs()
        {
            self.set = self.set + moved;
        }
    }

    /// Takes in what the source says of a step that the system clock did not make.
    fn learn(&mut self, reading: &Reading, terms: &Terms<'_>) {
        if terms.heard_at.is_none() {
            return;
        }
        let Some(before) = self.heard.replace(terms.ahead) else { return };
        let jump = terms.ahead - before;
        let leap = self.passing.map(|passing| passing.leap).filter(|leap| {
            let utc = self.utc(reading.now, terms) - jump;
            is(jump, leap.step()) && utc + SAME_STEP >= leap.instant()
        });
        if let Some(leap) = leap {
            self.learnt = leap.step();
        } else if self.learnt != Span::ZERO && is(jump, -self.learnt) {
            self.learnt = Span::ZERO;
        } else if self.owed != Span::ZERO && is(jump, self.owed) {
            (self.owed, self.doubted_until) = (Span::ZERO, None);
        }
    }

    fn utc(&self, now: Timestamp<Monotonic>, terms: &Terms<'_>) -> Timestamp<Utc> {
        let realtime = Timestamp::from_ns(now.as_ns().saturating_add(self.offset.offset.as_ns()));
        realtime + self.owed + terms.ahead - self.learnt - self.set
    }

    fn kernel(&mut self, reading: &Reading, terms: &Terms<'_>) -> Option<Leap> {
        let kind = reading.kernel.as_ref().and_then(kind);
        self.kernel_is_stale &= kind.is_some();
        let kind = kind.filter(|_| terms.ask_kernel && !self.kernel_is_stale)?;
        // After the leap it is another day, but still the same leap that the kernel speaks of.
        if let Some(leap) = self.passing.map(|passing| passing.leap) {
            return Some(Leap { kind, ..leap });
        }
        let system = reading.now.as_ns().saturating_add(reading.offset.offset.as_ns());
        Some(Leap::at_end_of_day(Timestamp::from_ns(system), kind))
    }

    /// Ends the passing of a leap when it is far enough behind, and doubts where the system clock
    /// should have stepped by now.
    fn finish(&mut self, utc: Timestamp<Utc>, reading: &Reading, terms: &Terms<'_>) {
        self.reached = Some(utc);
        let Some(Passing { leap, stepped, patience }) = self.passing else { return };
        let behind = utc - leap.instant();
        let is_known = stepped || self.learnt != Span::ZERO;
        let is_late = !is_known && terms.disciplined && behind >= patience;
        if is_known {
            self.doubted_until = None;
        } else if is_late && self.doubted_until.is_none() {
            self.doubted_until = Some(reading.now + DOUBT);
        }
        if behind < PASSING_AFTER {
            return;
        }
        if stepped {
            self.offset.offset = self.offset.offset + leap.step();
        } else {
            // What a source has learnt is in what it says.
            self.owed = self.owed + leap.step() - std::mem::take(&mut self.learnt);
        }
        self.passed = self.passed + leap.step();
        (self.passing, self.latest, self.kernel_is_stale) = (None, Some(leap), true);
        self.reached = Some(utc + leap.step());
    }

    fn point(&self, reading: &Reading, terms: &Terms<'_>, outlook: &Outlook) -> Point {
        let utc = self.utc(reading.now, terms);
        let passing = self.passing.map(|passing| passing.leap);
        // What was looked out for may have been passed just now.
        let next = passing.or(outlook.next).filter(|leap| Some(*leap) != self.latest);
        let announced = passing.or(Outlook { next, ..*outlook }.announced(utc));
        let doubtful = self.doubted_until.is_some();
        let mut notices = Vec::new();
        notices.extend(terms.list.and_then(|list| match list.validity(utc) {
            Validity::Valid => None,
            Validity::ExpiresSoon => Some(LeapNotice::ExpiresSoon(list.expires())),
            Validity::Expired => Some(LeapNotice::Expired(list.expires())),
        }));
        notices.extend(outlook.discord.map(LeapNotice::Discord));
        notices.extend(doubtful.then_some(LeapNotice::DidNotStep));
        Point {
            utc,
            realtime_minus_monotonic: self.offset.offset,
            passing,
            next,
            latest: Outlook::latest(terms.list, utc).max(self.latest),
            announced,
            doubtful,
            notices,
        }
    }
}

/// Whether a jump is this step.
fn is(jump: Span, step: Span) -> bool {
    (jump - step).as_ns().unsigned_abs() < SAME_STEP.as_ns().unsigned_abs()
}

fn kind(kernel: &KernelClock) -> Option<LeapKind> {
    match kernel.leap {
        PendingLeap::None => None,
        PendingLeap::Insert => Some(LeapKind::Insert),
        PendingLeap::Delete => Some(LeapKind::Delete),
    }
}

fn patience(terms: &Terms<'_>, kernel: Option<Leap>) -> Span {
    match terms.system {
        LeapSystem::Slews => Span::ZERO,
        _ if kernel.is_some() => PATIENCE_WITH_KERNEL,
        _ => PATIENCE_WITH_DAEMON,
    }
}
