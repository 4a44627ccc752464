//! What a server counts. Each worker owns one [`Counters`] on cache lines of its own and adds a
//! whole batch to it at once; a reader sums them. Nothing here is exact across fields while the
//! server runs: the fields of one worker are read one after the other.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use crate::Reason;
use crate::response::{BUCKETS, ResponseTimes};

/// Declares the counters once: the atomic ones that a worker owns, and their plain sums.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// The counters of one worker. Aligned so that no two workers share a cache line, nor the
        /// pair of lines that x86 processors fetch together.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct Counters {
            $($name: AtomicU64,)*
            ignored: [AtomicU64; Reason::COUNT],
            response_times: [AtomicU64; BUCKETS],
            response_times_ns: AtomicU64,
        }

        /// Plain numbers: one batch, one worker's counters, or the sum over all workers.
        /// `received` is the sum of `answered`, `ignored`, `expired` and `refused`.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
        pub struct Totals {
            $($(#[$doc])* pub $name: u64,)*
            /// Datagrams that were not answered on purpose, by reason.
            pub ignored: Ignored,
            /// How long replies took by their own timestamps, those that the kernel refused
            /// included.
            pub response_times: ResponseTimes,
        }

        impl Counters {
            /// Adds one batch.
            pub fn add(&self, batch: &Totals) {
                $(add(&self.$name, batch.$name);)*
                for (counter, count) in self.ignored.iter().zip(batch.ignored.0) {
                    add(counter, count);
                }
                let ResponseTimes { counts, sum_ns } = batch.response_times;
                for (counter, count) in self.response_times.iter().zip(counts) {
                    add(counter, count);
                }
                add(&self.response_times_ns, sum_ns);
            }

            /// The counts so far.
            #[must_use]
            pub fn totals(&self) -> Totals {
                Totals {
                    $($name: self.$name.load(Ordering::Relaxed),)*
                    ignored: Ignored(self.ignored.each_ref().map(|c| c.load(Ordering::Relaxed))),
                    response_times: ResponseTimes {
                        counts: self.response_times.each_ref().map(|c| c.load(Ordering::Relaxed)),
                        sum_ns: self.response_times_ns.load(Ordering::Relaxed),
                    },
                }
            }
        }

        impl std::ops::AddAssign for Totals {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)*
                for (sum, count) in self.ignored.0.iter_mut().zip(other.ignored.0) {
                    *sum += count;
                }
                self.response_times += other.response_times;
            }
        }
    };
}

counters! {
    /// Datagrams taken from the sockets.
    received,
    /// Replies handed to the kernel.
    answered,
    /// Requests left unanswered because the clock page had expired.
    expired,
    /// Replies that the kernel refused to send.
    refused,
    /// Datagrams that the kernel dropped because a socket's receive buffer was full; they are not
    /// part of `received`.
    dropped,
    /// Receive calls that failed.
    receive_errors,
    /// Requests that came with a timestamp of their reception by the kernel, part of `received`.
    receive_kernel_stamps,
    /// Requests that came with one of the interface's own clock; its time was served.
    receive_hardware_stamps,
    /// Replies that tell when the one before them left (RFC 9769), part of `answered` or `refused`.
    interleaved,
    /// Replies with a message authentication code, part of `answered` or `refused`.
    mac,
    /// Replies with Network Time Security, part of `answered` or `refused`.
    nts,
    /// Requests to get new cookies (the kiss NTSN), part of `answered` or `refused`.
    nts_kisses,
    /// Replies for which a timestamp of their transmission was asked.
    transmit_stamps_wanted,
    /// Replies for which the kernel's came.
    transmit_kernel_stamps,
    /// Replies for which one of the interface's own clock came.
    transmit_hardware_stamps,
}

/// Most counters stay unchanged by most batches; not writing keeps their line shared.
fn add(counter: &AtomicU64, count: u64) {
    if count != 0 {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}

/// Ignored datagrams by reason; in JSON an object with one key for each reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ignored([u64; Reason::COUNT]);

impl Ignored {
    /// Counts one.
    pub fn count(&mut self, reason: Reason) {
        self.0[reason as usize] += 1;
    }

    /// How many were ignored for this reason.
    #[must_use]
    pub fn of(&self, reason: Reason) -> u64 {
        self.0[reason as usize]
    }

    /// How many were ignored in all.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

impl Serialize for Ignored {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(Reason::COUNT))?;
        for reason in Reason::ALL {
            map.serialize_entry(reason.name(), &self.of(reason))?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use horolog_time::Span;

    use super::*;

    #[test]
    fn workers_add_up() {
        let mut batch = Totals { received: 5, answered: 3, expired: 1, ..Totals::default() };
        batch.ignored.count(Reason::Mode);
        batch.response_times.count(Span::from_ns(1_500));
        let workers = [Counters::default(), Counters::default()];
        workers[0].add(&batch);
        workers[1].add(&batch);
        workers[1].add(&batch);
        let mut sum = Totals::default();
        for worker in &workers {
            sum += worker.totals();
        }
        assert_eq!((sum.received, sum.answered, sum.expired), (15, 9, 3));
        assert_eq!((sum.ignored.of(Reason::Mode), sum.ignored.total()), (3, 3));
        let times = sum.response_times;
        assert_eq!((times.counts[1], times.total(), times.sum_ns), (3, 3, 4_500));
    }

    #[test]
    fn workers_share_no_cache_line() {
        assert_eq!(align_of::<Counters>(), 128);
        assert_eq!(size_of::<Counters>() % 128, 0);
    }

    #[test]
    fn json_names_every_reason() {
        let json = serde_json::to_value(Totals::default()).unwrap();
        assert_eq!(json["ignored"].as_object().unwrap().len(), Reason::COUNT);
        assert_eq!(json["ignored"]["mode"], 0);
    }
}
