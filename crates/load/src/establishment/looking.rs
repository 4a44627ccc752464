//! Looks at establishments while they go on: all clients tell in one place what they have counted,
//! and whoever follows is shown it twice a second.

use std::convert::Infallible;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use horolog_record::{EstablishmentTrial, LOOK_EVERY, Look, Percentiles, SoFar, entered};
use horolog_time::Span;

use crate::account::TrialCounts;
use crate::run::{Lookout, Under};

/// Who follows establishments while they go on.
pub trait Follower {
    /// Whether it wants looks at trials that run.
    fn looks(&self) -> bool {
        false
    }

    /// A look at a trial that runs, twice a second, and one when it is over.
    fn look(&mut self, _look: Look) {}

    /// A trial is over.
    fn ended(&mut self, _index: usize, _trial: &EstablishmentTrial) {}
}

/// Nobody.
impl Follower for () {}

/// Where clients tell what they have counted in a trial, if anybody wants to know.
pub(super) struct Place(Option<Mutex<SoFar>>);

impl Place {
    pub(super) fn begins(&self) {
        if let Some(so_far) = &self.0 {
            entered(so_far).counts.sent += 1;
        }
    }

    pub(super) fn took(&self, time: Duration) {
        if let Some(so_far) = &self.0 {
            let mut so_far = entered(so_far);
            so_far.counts.received += 1;
            so_far.latency.record(time.as_nanos() as u64);
        }
    }
}

/// What is remembered from one trial to the next.
pub(super) struct Looking<'a> {
    follower: &'a mut dyn Follower,
    lookout: Lookout,
    index: usize,
}

impl<'a> Looking<'a> {
    pub(super) fn new(follower: &'a mut dyn Follower) -> Self {
        Self { follower, lookout: Lookout::new(), index: 0 }
    }

    /// A place for the next trial.
    pub(super) fn place(&self) -> Place {
        Place(self.follower.looks().then(Mutex::default))
    }

    /// Looks on until nobody holds the other end of `over`.
    pub(super) fn watch(
        &mut self,
        over: &Receiver<Infallible>,
        place: &Place,
        (rate, duration): (Option<f64>, Duration),
    ) {
        let Some(so_far) = &place.0 else { return };
        let (begun, mut seen) = (Instant::now(), SoFar::default());
        let every = Duration::from_nanos(LOOK_EVERY.as_ns().unsigned_abs());
        self.lookout.begin(self.index);
        while over.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
            seen.clear();
            seen.merge(&entered(so_far));
            let elapsed = Span::from_ns(begun.elapsed().as_nanos() as i64);
            let look = self.lookout.look(&self.under(rate, duration.as_secs_f64()), elapsed, &seen);
            self.follower.look(look);
        }
    }

    /// The trial is over.
    pub(super) fn end(&mut self, trial: &EstablishmentTrial) {
        if self.follower.looks() {
            let counts = TrialCounts {
                sent: trial.sent,
                received: trial.received,
                ..TrialCounts::default()
            };
            let under = self.under(trial.offered_rate, trial.duration_s);
            if let Some(look) = self.lookout.end(&under, std::iter::once(&counts)) {
                let latency_ns = trial.handshake_ns.as_ref().map(Percentiles::of);
                self.follower.look(Look { latency_ns, ..look });
            }
        }
        self.follower.ended(self.index, trial);
        self.index += 1;
    }

    const fn under(&self, rate: Option<f64>, duration_s: f64) -> Under<'static> {
        Under { index: self.index, name: "", rate, begun_s: 0.0, duration_s }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[derive(Default)]
    struct Seen {
        wants: bool,
        looks: Vec<Look>,
        ended: Vec<usize>,
    }

    impl Follower for Seen {
        fn looks(&self) -> bool {
            self.wants
        }

        fn look(&mut self, look: Look) {
            self.looks.push(look);
        }

        fn ended(&mut self, index: usize, _: &EstablishmentTrial) {
            self.ended.push(index);
        }
    }

    fn trial() -> EstablishmentTrial {
        EstablishmentTrial {
            offered_rate: None,
            achieved_rate: 1.0,
            duration_s: 2.0,
            clients: 1,
            sent: 4,
            received: 3,
            lost: 1,
            failures: BTreeMap::new(),
            handshake_ns: None,
        }
    }

    #[test]
    fn what_clients_tell_is_seen_meanwhile_and_at_the_end() {
        let mut seen = Seen { wants: true, ..Seen::default() };
        let mut looking = Looking::new(&mut seen);
        let (place, (alive, over)) = (looking.place(), mpsc::channel());
        thread::scope(|scope| {
            scope.spawn(|| {
                (0..3).for_each(|_| place.begins());
                (0..2).for_each(|_| place.took(Duration::from_millis(5)));
                thread::sleep(Duration::from_millis(1_200));
                drop(alive);
            });
            looking.watch(&over, &place, (None, Duration::from_secs(2)));
        });
        looking.end(&trial());
        let first = &seen.looks[0];
        assert_eq!((first.counts.sent, first.counts.received), (3, 2));
        assert!(first.latency_ns.is_some_and(|times| times.p50 / 1_000 == 5_000), "{first:?}");
        let last = seen.looks.last().unwrap();
        assert_eq!((last.counts.sent, last.sent_rate, last.offered_rate), (4, 2.0, None));
        assert_eq!(seen.ended, [0]);
    }

    #[test]
    fn nobody_tells_where_nobody_looks() {
        let mut seen = Seen::default();
        let mut looking = Looking::new(&mut seen);
        let (place, (alive, over)) = (looking.place(), mpsc::channel());
        drop(alive);
        place.begins();
        assert!(place.0.is_none());
        looking.watch(&over, &place, (None, Duration::ZERO));
        looking.end(&trial());
        assert_eq!((seen.looks.len(), seen.ended), (0, vec![0]));
    }
}
