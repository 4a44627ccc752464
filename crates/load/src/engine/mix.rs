//! Several engines at once, one for each kind of requests, each with its share of the rate. Each is
//! what it is alone, with clients, schedule and books of its own; here they begin together, and
//! what they counted is put together interval by interval.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;

use horolog_record::Engine as Kind;
use horolog_sys::clock::MonotonicClock;
use horolog_time::{Clock, Span};

use super::drain::LEAD;
use super::intervals::{self, Gathering};
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
        let (sender, books) = mpsc::channel();
        thread::scope(|scope| {
            let parts = self.parts.iter_mut().zip(&plan.parts).enumerate();
            let threads: Vec<_> = parts
                .map(|(index, (engine, part))| {
                    let plan = plan.of_part(part);
                    let mut teller = Teller { index, count, told: 0, books: sender.clone(), stop };
                    scope.spawn(move || engine.run(&plan, &mut teller))
                })
                .collect();
            drop(sender);
            gathering.gather(&books, (start, stop), intervals::look(plan), intervals);
            threads.into_iter().try_for_each(|thread| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        })
    }
}
