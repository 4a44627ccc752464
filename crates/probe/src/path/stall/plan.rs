//! Plan of the write patterns and socket options. Pure.

use horolog_record::{StallSocketOption, WritePattern};

use crate::path::tcp::protocol::{ConnectionFlags, ConnectionJob, TcpHello};

/// Payload of each write of a batch in bytes, as sent by services that were observed to stall.
const BATCH_BYTES: u32 = 132;
/// Payload of each of two small writes in bytes.
const SMALL_BYTES: u32 = 10;
const REQUEST_BYTES: u32 = 64;
const HEAD_BYTES: u32 = 200;
/// Body in bytes; fits into one segment with its header.
const BODY_BYTES: u32 = 1_000;
/// Number of exchanges with a cork that is never removed, each of which takes 200 ms.
const FORGOTTEN_CORK_EXCHANGES: u32 = 3;
/// Time that a connection may take in addition to its exchanges, in ms.
const TIME_MARGIN_MS: u32 = 2_000;
/// Longest time of one exchange in ms: the kernel's cork timer plus a margin.
const EXCHANGE_MS_MAX: u32 = 300;

/// One write pattern with one socket option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WritePatternPlan {
    pub(super) pattern: WritePattern,
    pub(super) option: StallSocketOption,
    /// Writes before the reads.
    pub(super) writes: u32,
    /// Payload of each write in bytes; of the body if the far end's writes are measured.
    pub(super) write_bytes: u32,
    pub(super) exchanges: u32,
}

const OPTIONS: [StallSocketOption; 5] = [
    StallSocketOption::None,
    StallSocketOption::NoDelay,
    StallSocketOption::QuickAckOnce,
    StallSocketOption::QuickAckEach,
    StallSocketOption::Cork,
];

/// Returns all patterns but [`WritePatternPlan::single`]. `mss_bytes` is the maximum segment size.
pub(super) fn all_patterns(count: u32, batches: &[u32], mss_bytes: u32) -> Vec<WritePatternPlan> {
    let plan = |pattern, option, writes, write_bytes| WritePatternPlan {
        pattern,
        option,
        writes,
        write_bytes,
        exchanges: count,
    };
    let mut plans = Vec::new();
    plans.extend(OPTIONS.map(|option| plan(WritePattern::WriteWriteRead, option, 2, SMALL_BYTES)));
    let none = StallSocketOption::None;
    plans.push(plan(WritePattern::FullSegments, none, 2, mss_bytes));
    plans.push(plan(WritePattern::LastWithEnd, none, 2, SMALL_BYTES));
    for writes in batches {
        let of = |option| plan(WritePattern::Batch, option, *writes, BATCH_BYTES);
        plans.extend(OPTIONS.map(of));
    }
    let body = |option| plan(WritePattern::HeaderAndBody, option, 1, BODY_BYTES);
    plans.extend(OPTIONS.map(body));
    let cork = StallSocketOption::Cork;
    plans.push(plan(WritePattern::HeaderBodyClose, cork, 1, BODY_BYTES));
    let forgotten = plan(WritePattern::CorkForgotten, cork, 1, BODY_BYTES);
    plans.push(WritePatternPlan { exchanges: FORGOTTEN_CORK_EXCHANGES.min(count), ..forgotten });
    plans
}

impl WritePatternPlan {
    /// Returns the pattern of one write in each direction, which does not wait.
    pub(super) const fn single(count: u32) -> Self {
        Self {
            pattern: WritePattern::Single,
            option: StallSocketOption::None,
            writes: 1,
            write_bytes: 2 * SMALL_BYTES,
            exchanges: count,
        }
    }

    /// Returns true if the far end's reply consists of two writes.
    pub(super) const fn has_far_end_writes(&self) -> bool {
        matches!(
            self.pattern,
            WritePattern::HeaderAndBody
                | WritePattern::HeaderBodyClose
                | WritePattern::CorkForgotten
        )
    }

    /// Returns true if each exchange has a connection of its own.
    pub(super) const fn has_connection_per_exchange(&self) -> bool {
        matches!(self.pattern, WritePattern::HeaderBodyClose)
    }

    /// Returns the payload of each write of the near end in bytes.
    pub(super) const fn write_payload_bytes(&self) -> u32 {
        if self.has_far_end_writes() { REQUEST_BYTES } else { self.write_bytes }
    }

    /// Returns the number of reads per exchange, and the bytes of each.
    pub(super) const fn reads(&self) -> (u32, u32) {
        match self.pattern {
            WritePattern::Batch => (self.writes, self.write_bytes),
            _ if self.has_far_end_writes() => (1, HEAD_BYTES + BODY_BYTES),
            _ => (1, 2 * SMALL_BYTES),
        }
    }

    /// Returns the hello that requests this pattern from the far end.
    pub(super) fn hello(&self) -> TcpHello {
        let is_of_far_end = self.has_far_end_writes();
        let is_batch = self.pattern == WritePattern::Batch;
        let (_, read_bytes) = self.reads();
        let flags = ConnectionFlags {
            no_delay: self.option == StallSocketOption::NoDelay,
            quick_ack_once: self.option == StallSocketOption::QuickAckOnce,
            quick_ack_each: self.option == StallSocketOption::QuickAckEach,
            cork: self.option == StallSocketOption::Cork,
            send_file: is_of_far_end,
            close_to_uncork: self.pattern == WritePattern::HeaderBodyClose,
            forget_cork: self.pattern == WritePattern::CorkForgotten,
            observe: true,
            // Not with an option, since one that is set only once would have taken effect during
            // the delay.
            delay_welcome: self.option == StallSocketOption::None,
        };
        let writes = if is_batch { 1 } else { self.writes };
        TcpHello {
            job: ConnectionJob::Exchange,
            flags,
            request_bytes: writes.saturating_mul(self.write_payload_bytes()),
            head_bytes: if is_of_far_end { HEAD_BYTES } else { read_bytes },
            body_bytes: if is_of_far_end { BODY_BYTES } else { 0 },
            batch: if is_batch { self.writes } else { 1 },
            time_ms: TIME_MARGIN_MS.saturating_add(self.exchanges.saturating_mul(EXCHANGE_MS_MAX)),
            warm_up_ms: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pattern_comes_under_the_options_that_matter() {
        let plans = all_patterns(10, &[3, 32], 1_448);
        let of = |pattern| plans.iter().filter(|plan| plan.pattern == pattern).count();
        assert_eq!((of(WritePattern::WriteWriteRead), of(WritePattern::Batch)), (5, 10));
        assert_eq!((of(WritePattern::HeaderAndBody), of(WritePattern::CorkForgotten)), (5, 1));
        assert_eq!(of(WritePattern::Single), 0, "it comes before, to hold the others against");
    }

    #[test]
    fn both_ends_count_the_same_bytes() {
        for plan in all_patterns(2, &[1, 7], 1_448).into_iter().chain([WritePatternPlan::single(2)])
        {
            let hello = plan.hello();
            let sent = plan.writes * plan.write_payload_bytes();
            let (reads, read_bytes) = plan.reads();
            let answers = sent / hello.request_bytes;
            let answered = answers * (hello.head_bytes + hello.body_bytes);
            assert_eq!(sent % hello.request_bytes, 0, "{plan:?}");
            assert_eq!(answered, reads * read_bytes, "{plan:?}");
            assert_eq!(answers, hello.batch, "{plan:?}");
        }
    }
}
