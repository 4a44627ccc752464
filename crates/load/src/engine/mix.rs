//! Several engines at once, one for each kind of requests, each with its share of the rate. Each is
//! what it is alone, with clients, schedule and books of its own; here they begin together, and
//! what they counted is put together interval by interval.

use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;

use horolog_record::{Engine as Kind, SoFar, entered};
use horolog_sys::clock::MonotonicClock;
use horolog_time::{Clock, Span};

use super::drain::LEAD;
use super::intervals::{self, Gathering};
use super::so_far::{self, Looking};
use super::{Engine, EngineError, Intervals};
use crate::account::{Closed, TrialCounts};
use crate::plan::TrialPlan;

/// The engines of a mix, at least one, in the order of its parts.
pub(crate) struct MixEngine {
    kind: Kind,
    parts: Vec<Box<dyn Engine>>,
}

impl MixEngine {
    /// Takes open engines of one kind.
    pub(crate) fn new(kind: Kind, parts: Vec<Box<dyn Engine>>) -> Self {
        Self { kind, parts }
    }
}

/// Hands the books of one part over to the thread that puts them together.
struct Teller<'a> {
    index: usize,
    count: usize,
    /// Intervals that were told of.
    told: u64,
    books: Sender<Closed>,
    stop: &'a AtomicBool,
    /// Where it says what it has counted so far, where somebody looks on.
    slot: Option<&'a Mutex<SoFar>>,
}

impl Intervals for Teller<'_> {
    fn closed(&mut self, counts: TrialCounts) {
        let book = (self.told, Box::new(counts.as_part(self.index, self.count)));
        self.told += 1;
        // Whoever takes the books outlives the parts.
        let _ = self.books.send(book);
    }

    fn tick(&mut self, _: Span) -> ControlFlow<()> {
        if self.stop.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    fn looks(&self) -> bool {
        self.slot.is_some()
    }

    fn look(&mut self, _: Span, so_far: &SoFar) {
        if let Some(slot) = self.slot {
            let mut told = entered(slot);
            told.clear();
            told.merge(so_far);
        }
    }
}

impl Engine for MixEngine {
    fn kind(&self) -> Kind {
        self.kind
    }

    fn shortfall(&self) -> Option<String> {
        self.parts.iter().find_map(|part| part.shortfall())
    }

    fn run(&mut self, plan: &TrialPlan, intervals: &mut dyn Intervals) -> Result<(), EngineError> {
        let start = MonotonicClock.now() + LEAD;
        let stop = &AtomicBool::new(false);
        let count = self.parts.len();
        let gathering = Gathering::new(count);
        let slots = &so_far::wanted(count, intervals);
        let (sender, books) = mpsc::channel();
        thread::scope(|scope| {
            let parts = self.parts.iter_mut().zip(&plan.parts).enumerate();
            let threads: Vec<_> = parts
                .map(|(index, (engine, part))| {
                    let plan = plan.of_part(part);
                    let slot = slots.as_ref().and_then(|slots| slots.of(index));
                    let books = sender.clone();
                    let mut teller = Teller { index, count, told: 0, books, stop, slot };
                    scope.spawn(move || {
                        let ran = engine.run(&plan, &mut teller);
                        if ran.is_err() {
                            // Without it the others are not what was asked for.
                            stop.store(true, Ordering::Relaxed);
                        }
                        ran
                    })
                })
                .collect();
            drop(sender);
            let looks = (intervals::look(plan), slots.as_ref().map(Looking::new));
            gathering.gather(&books, (start, stop), looks, intervals);
            threads.into_iter().try_for_each(|thread| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::course::Course;
    use crate::plan::PartPlan;
    use horolog_record::{Mode, Spacing};
    use std::io;
    use std::sync::Arc;
    use std::time::Duration;

    /// An engine that sends one request for each that a second of the rate has, in each of some
    /// intervals, until it is told to stop.
    struct Fake {
        intervals: usize,
        fails: bool,
    }

    impl Engine for Fake {
        fn kind(&self) -> Kind {
            Kind::Udp
        }

        fn run(&mut self, plan: &TrialPlan, to: &mut dyn Intervals) -> Result<(), EngineError> {
            for _ in 0..self.intervals {
                let sent = plan.rate as u64;
                to.closed(TrialCounts { sent, received: sent / 2, ..TrialCounts::default() });
            }
            while self.intervals == 0 && to.tick(Span::ZERO).is_continue() {
                thread::sleep(Duration::from_millis(1));
            }
            if self.fails {
                return Err(EngineError::system("send")(io::Error::other("no")));
            }
            Ok(())
        }
    }

    struct Taken {
        counts: Vec<TrialCounts>,
        stops: bool,
    }

    impl Intervals for Taken {
        fn closed(&mut self, counts: TrialCounts) {
            self.counts.push(counts);
        }

        fn tick(&mut self, _: Span) -> ControlFlow<()> {
            if self.stops { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }

    fn run(fakes: [Fake; 2], stops: bool) -> (Vec<TrialCounts>, Result<(), EngineError>) {
        let part = |share: f64| PartPlan {
            name: share.to_string(),
            mode: Mode::NtpBasic,
            share,
            clients: 1,
            nts: false,
        };
        let course = Course::soak(1000.0, Duration::from_secs(1), None).unwrap();
        let plan = TrialPlan {
            rate: 1000.0,
            duration: Duration::from_secs(1),
            spacing: Spacing::Constant,
            clients: 2,
            nts: false,
            course: Some(Arc::new(course)),
            parts: vec![part(0.75), part(0.25)],
        };
        let parts = fakes.map(|fake| Box::new(fake) as Box<dyn Engine>).into();
        let mut taken = Taken { counts: Vec::new(), stops };
        let ended = MixEngine::new(Kind::Udp, parts).run(&plan, &mut taken);
        (taken.counts, ended)
    }

    fn fake(intervals: usize) -> Fake {
        Fake { intervals, fails: false }
    }

    #[test]
    fn intervals_hold_all_parts_and_each() {
        let (counts, ended) = run([fake(3), fake(3)], false);
        ended.unwrap();
        assert_eq!(counts.len(), 3);
        for interval in counts {
            assert_eq!((interval.sent, interval.received), (1000, 500));
            let parts: Vec<_> = interval.parts.iter().map(|part| part.sent).collect();
            assert_eq!(parts, [750, 250]);
        }
    }

    #[test]
    fn a_part_that_ends_early_leaves_the_others_their_intervals() {
        let (counts, ended) = run([fake(1), fake(2)], false);
        ended.unwrap();
        assert_eq!(counts.iter().map(|one| one.sent).collect::<Vec<_>>(), [1000, 250]);
    }

    #[test]
    fn all_parts_stop_when_told_to() {
        let (counts, ended) = run([fake(0), fake(0)], true);
        ended.unwrap();
        assert!(counts.is_empty());
    }

    #[test]
    fn what_one_part_complains_of_is_told() {
        let (counts, ended) = run([fake(1), Fake { intervals: 1, fails: true }], false);
        assert_eq!(counts.len(), 1);
        assert!(ended.unwrap_err().to_string().contains("cannot send"));
    }
}
