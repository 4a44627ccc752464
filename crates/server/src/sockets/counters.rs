//! Counters of a server. Each worker has its own [`WorkerCounters`] and adds one batch at a time; a
//! reader sums them over the workers. While the server runs, the sums of different fields need not
//! be consistent, because fields are read one after the other.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::response_time::{BUCKETS, ResponseTimeHistogram};
use crate::reply::decide::IgnoreReason;

/// Declares each counter once, for the atomic counters of a worker and for their plain counts.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counters of one worker, aligned so that no two workers share a cache line or the pair of
        /// lines that x86 processors prefetch together.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct WorkerCounters {
            $($name: AtomicU64,)*
            ignored: [AtomicU64; IgnoreReason::COUNT],
            response_times: [AtomicU64; BUCKETS],
            response_times_ns: AtomicU64,
        }

        /// Counts of one batch or one worker, or the sum over all workers. `received` is the sum of
        /// `answered`, `ignored`, `expired` and `refused`.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
        #[serde(default)]
        pub struct SocketEngineCounts {
            $($(#[$doc])* pub $name: u64,)*
            /// Datagrams ignored by a rule, by reason.
            pub ignored: IgnoredCounts,
            /// Response times from receive to transmit timestamp, including those of replies that
            /// the kernel refused.
            pub response_times: ResponseTimeHistogram,
        }

        impl WorkerCounters {
            /// Adds the counts of one batch.
            pub fn add(&self, batch: &SocketEngineCounts) {
                $(add(&self.$name, batch.$name);)*
                for (counter, count) in self.ignored.iter().zip(batch.ignored.0) {
                    add(counter, count);
                }
                let ResponseTimeHistogram { counts, sum_ns } = batch.response_times;
                for (counter, count) in self.response_times.iter().zip(counts) {
                    add(counter, count);
                }
                add(&self.response_times_ns, sum_ns);
            }

            /// Returns the present counts.
            #[must_use]
            pub fn totals(&self) -> SocketEngineCounts {
                SocketEngineCounts {
                    $($name: self.$name.load(Ordering::Relaxed),)*
                    ignored: IgnoredCounts(self.ignored.each_ref().map(|c| c.load(Ordering::Relaxed))),
                    response_times: ResponseTimeHistogram {
                        counts: self.response_times.each_ref().map(|c| c.load(Ordering::Relaxed)),
                        sum_ns: self.response_times_ns.load(Ordering::Relaxed),
                    },
                }
            }
        }

        impl std::ops::AddAssign for SocketEngineCounts {
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
    /// Datagrams received from the sockets.
    received,
    /// Replies passed to the kernel.
    answered,
    /// Requests not answered because the clock page had expired, or because the receive timestamp
    /// was implausible.
    expired,
    /// Replies that the kernel refused to send.
    refused,
    /// Datagrams that the kernel dropped, such as those for which a socket's receive buffer had no
    /// room; not part of `received`.
    dropped,
    /// Receive calls that failed.
    receive_errors,
    /// Requests with a kernel receive timestamp, part of `received`.
    receive_kernel_timestamps,
    /// Requests whose hardware receive timestamp was used, part of `received`.
    receive_hardware_timestamps,
    /// Replies in interleaved mode (RFC 9769), part of `answered` or `refused`.
    interleaved,
    /// Replies in symmetric passive mode (2) to requests in symmetric active mode (1), part of
    /// `answered` or `refused`.
    symmetric,
    /// Replies with a message authentication code, part of `answered` or `refused`.
    mac,
    /// Replies with Network Time Security, part of `answered` or `refused`.
    nts,
    /// NTS NAK replies (kiss code NTSN), part of `answered` or `refused`.
    nts_kisses,
    /// Replies for which a transmit timestamp was requested.
    transmit_timestamps_requested,
    /// Replies whose stored transmit timestamp was replaced by that of the kernel, or was no longer
    /// stored.
    transmit_kernel_timestamps,
    /// Replies whose stored transmit timestamp was replaced by that of the NIC, or was no longer
    /// stored.
    transmit_hardware_timestamps,
}

/// Adds to a counter. Zero, the most frequent count, is not added, so that the cache line stays
/// shared.
fn add(counter: &AtomicU64, count: u64) {
    if count != 0 {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}

/// Counts of ignored datagrams by reason; in JSON an object with a key for each reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IgnoredCounts([u64; IgnoreReason::COUNT]);

impl IgnoredCounts {
    /// Counts one ignored datagram.
    pub fn count(&mut self, reason: IgnoreReason) {
        self.0[reason as usize] += 1;
    }

    /// Returns the count for this reason.
    #[must_use]
    pub fn count_of(&self, reason: IgnoreReason) -> u64 {
        self.0[reason as usize]
    }

    /// Returns each count with the name of its reason.
    pub fn by_name(&self) -> impl Iterator<Item = (&'static str, u64)> {
        IgnoreReason::ALL.into_iter().map(|reason| (reason.name(), self.count_of(reason)))
    }

    /// Returns the number of requests ignored by rate limits and prefix lists.
    #[must_use]
    pub fn limited(&self) -> u64 {
        let reasons = [IgnoreReason::Limited, IgnoreReason::Denied, IgnoreReason::NewClients];
        reasons.into_iter().map(|reason| self.count_of(reason)).sum()
    }

    /// Returns the sum over all reasons.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

impl Serialize for IgnoredCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.by_name())
    }
}

impl<'de> Deserialize<'de> for IgnoredCounts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let counts: BTreeMap<String, u64> = BTreeMap::deserialize(deserializer)?;
        Ok(Self(IgnoreReason::ALL.map(|reason| counts.get(reason.name()).copied().unwrap_or(0))))
    }
}

#[cfg(test)]
mod tests {
    use horolog_time::Span;

    use super::*;

    #[test]
    fn workers_add_up() {
        let mut batch = SocketEngineCounts {
            received: 5,
            answered: 3,
            expired: 1,
            ..SocketEngineCounts::default()
        };
        batch.ignored.count(IgnoreReason::ModeControl);
        batch.response_times.count(Span::from_ns(1_500));
        let workers = [WorkerCounters::default(), WorkerCounters::default()];
        workers[0].add(&batch);
        workers[1].add(&batch);
        workers[1].add(&batch);
        let mut sum = SocketEngineCounts::default();
        for worker in &workers {
            sum += worker.totals();
        }
        assert_eq!((sum.received, sum.answered, sum.expired), (15, 9, 3));
        assert_eq!((sum.ignored.count_of(IgnoreReason::ModeControl), sum.ignored.total()), (3, 3));
        let times = sum.response_times;
        assert_eq!((times.counts[1], times.total(), times.sum_ns), (3, 3, 4_500));
    }

    #[test]
    fn workers_share_no_cache_line() {
        assert_eq!(align_of::<WorkerCounters>(), 128);
        assert_eq!(size_of::<WorkerCounters>() % 128, 0);
    }

    #[test]
    fn json_names_every_reason() {
        let json = serde_json::to_value(SocketEngineCounts::default()).unwrap();
        assert_eq!(json["ignored"].as_object().unwrap().len(), IgnoreReason::COUNT);
        assert_eq!(json["ignored"]["mode_control"], 0);
    }
}
