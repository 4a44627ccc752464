//! Engine of a mix: one engine for each kind of requests, each with its share of the rate and with
//! clients, schedule and counters of its own. All start together; their counts are merged interval
//! by interval.

use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;

use horolog_record::{LoadEngineKind as Kind, Progress, lock_slot};
use horolog_sys::clock::ClockMonotonic;
use horolog_time::{Clock, Span};

use super::drain::START_DELAY;
use super::intervals::{self, IntervalMerger, ProgressForwarder};
use super::{EngineError, IntervalSink, LoadEngine};
use crate::plan::TrialPlan;
use crate::request_tracker::{ClosedInterval, TrialCounts};

/// Engines of a mix, at least one, in the order of its parts.
pub(crate) struct MixEngine {
    kind: Kind,
    parts: Vec<Box<dyn LoadEngine>>,
}

impl MixEngine {
    /// Creates the engine of a mix from open engines of one kind.
    pub(crate) fn new(kind: Kind, parts: Vec<Box<dyn LoadEngine>>) -> Self {
        Self { kind, parts }
    }
}

/// Interval sink of one part: sends its counts to the thread that merges them.
struct MixPartIntervalSender<'a> {
    index: usize,
    count: usize,
    /// Number of intervals reported.
    reported: u64,
    sender: Sender<ClosedInterval>,
    stop: &'a AtomicBool,
    /// Destination of the progress, if it is observed.
    slot: Option<&'a Mutex<Progress>>,
}

impl IntervalSink for MixPartIntervalSender<'_> {
    fn deliver_interval(&mut self, counts: TrialCounts) {
        let closed_interval = (self.reported, Box::new(counts.as_part(self.index, self.count)));
        self.reported += 1;
        // The receiver of the counts outlives the parts.
        let _ = self.sender.send(closed_interval);
    }

    fn tick(&mut self, _: Span) -> ControlFlow<()> {
        if self.stop.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    fn wants_snapshots(&self) -> bool {
        self.slot.is_some()
    }

    fn report_progress(&mut self, _: Span, latest: &Progress) {
        if let Some(slot) = self.slot {
            let mut progress = lock_slot(slot);
            progress.clear();
            progress.merge(latest);
        }
    }
}

impl LoadEngine for MixEngine {
    fn kind(&self) -> Kind {
        self.kind
    }

    fn missing_feature(&self) -> Option<String> {
        self.parts.iter().find_map(|part| part.missing_feature())
    }

    fn run(
        &mut self,
        plan: &TrialPlan,
        intervals: &mut dyn IntervalSink,
    ) -> Result<(), EngineError> {
        let start = ClockMonotonic.now() + START_DELAY;
        let stop = &AtomicBool::new(false);
        let count = self.parts.len();
        let merger = IntervalMerger::new(count);
        let slots = &super::intervals::slots_if_wanted(count, intervals);
        let (sender, receiver) = mpsc::channel();
        thread::scope(|scope| {
            let parts = self.parts.iter_mut().zip(plan.part_plans()).enumerate();
            let threads: Vec<_> = parts
                .map(|(index, (engine, plan))| {
                    let slot = slots.as_ref().and_then(|slots| slots.slot(index));
                    let part_sender = sender.clone();
                    let mut reporter = MixPartIntervalSender {
                        index,
                        count,
                        reported: 0,
                        sender: part_sender,
                        stop,
                        slot,
                    };
                    scope.spawn(move || {
                        let result = engine.run(&plan, &mut reporter);
                        if result.is_err() {
                            // Without this part the others are not the requested mix.
                            stop.store(true, Ordering::Relaxed);
                        }
                        result
                    })
                })
                .collect();
            drop(sender);
            let observation =
                (intervals::check_interval(plan), slots.as_ref().map(ProgressForwarder::new));
            merger.merge_until_end(&receiver, (start, stop), observation, intervals);
            threads.into_iter().try_for_each(|thread| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load_profile::LoadProfile;
    use crate::plan::MixPartPlan;
    use horolog_record::RequestMode;
    use std::io;
    use std::sync::Arc;
    use std::time::Duration;

    /// Engine that counts in each interval as many requests as the rate has per second, for some
    /// intervals or until it is stopped.
    struct Fake {
        intervals: usize,
        fails: bool,
    }

    impl LoadEngine for Fake {
        fn kind(&self) -> Kind {
            Kind::Udp
        }

        fn run(&mut self, plan: &TrialPlan, to: &mut dyn IntervalSink) -> Result<(), EngineError> {
            for _ in 0..self.intervals {
                let sent = plan.rate as u64;
                to.deliver_interval(TrialCounts {
                    sent,
                    received: sent / 2,
                    ..TrialCounts::default()
                });
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

    impl IntervalSink for Taken {
        fn deliver_interval(&mut self, counts: TrialCounts) {
            self.counts.push(counts);
        }

        fn tick(&mut self, _: Span) -> ControlFlow<()> {
            if self.stops { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }

    fn run(fakes: [Fake; 2], stops: bool) -> (Vec<TrialCounts>, Result<(), EngineError>) {
        let part = |share: f64| MixPartPlan {
            name: share.to_string(),
            mode: RequestMode::NtpBasic,
            share,
            clients: 1,
        };
        let profile = LoadProfile::soak(1000.0, Duration::from_secs(1), None).unwrap();
        let plan = TrialPlan {
            profile: Some(Arc::new(profile)),
            parts: vec![part(0.75), part(0.25)],
            ..TrialPlan::constant(1000.0, Duration::from_secs(1), 2)
        };
        let parts = fakes.map(|fake| Box::new(fake) as Box<dyn LoadEngine>).into();
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
    fn all_parts_stop_on_request() {
        let (counts, ended) = run([fake(0), fake(0)], true);
        ended.unwrap();
        assert!(counts.is_empty());
    }

    #[test]
    fn the_error_of_one_part_is_returned() {
        let (counts, ended) = run([fake(1), Fake { intervals: 1, fails: true }], false);
        assert_eq!(counts.len(), 1);
        assert!(ended.unwrap_err().to_string().contains("cannot send"));
    }
}
