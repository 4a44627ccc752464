//! The books of a lane: one for the whole trial, or one for each interval of its course. A request
//! and all that becomes of it stand in the book of the interval in which it was due, so that the
//! intervals add up whatever was still on its way when one ended.

use std::collections::VecDeque;

use horolog_record::{LookCounts, SoFar};
use horolog_time::{Monotonic, Span, Timestamp};

use super::TrialCounts;

/// A closed book and the number of its interval.
pub type Closed = (u64, Box<TrialCounts>);

/// The books that are still written in.
#[derive(Debug)]
pub(super) struct Books {
    start: Timestamp<Monotonic>,
    /// The length of an interval; `None` where one book is for all.
    interval: Option<Span>,
    /// The number of the first open book.
    first: u64,
    open: VecDeque<Box<TrialCounts>>,
    /// What stood in the books that are closed.
    closed: LookCounts,
    /// What each begins with: zeros, also where other kinds of requests have none at all.
    blank: TrialCounts,
    /// When the interval of the last open book begins and ends.
    current: (Timestamp<Monotonic>, Timestamp<Monotonic>),
}

impl Books {
    pub(super) fn new(
        start: Timestamp<Monotonic>,
        interval: Option<Span>,
        blank: TrialCounts,
    ) -> Self {
        let end = interval.map_or(Timestamp::from_ns(i64::MAX), |interval| start + interval);
        let open = VecDeque::from([Box::new(blank.clone())]);
        // What is due before the start is not, but for rounding: the first book has it.
        Self {
            start,
            interval,
            first: 0,
            open,
            closed: LookCounts::default(),
            blank,
            current: (Timestamp::from_ns(i64::MIN), end),
        }
    }

    /// Moves the start, before anything stands in them.
    pub(super) fn begin_at(&mut self, start: Timestamp<Monotonic>) {
        *self = Self::new(start, self.interval, std::mem::take(&mut self.blank));
    }

    /// The book of a request that was due then. One whose interval was closed long ago stands in
    /// the oldest that is open.
    #[inline]
    pub(super) fn of(&mut self, intended: Timestamp<Monotonic>) -> &mut TrialCounts {
        if (self.current.0..self.current.1).contains(&intended) {
            return self.latest();
        }
        self.turn_to(intended)
    }

    #[cold]
    fn turn_to(&mut self, intended: Timestamp<Monotonic>) -> &mut TrialCounts {
        let Some(interval) = self.interval else { return self.latest() };
        let number = ((intended - self.start).as_ns() / interval.as_ns()).max(0) as u64;
        let place = number.saturating_sub(self.first) as usize;
        while self.open.len() <= place {
            self.open.push_back(Box::new(self.blank.clone()));
            let last = self.first as i64 + self.open.len() as i64 - 1;
            let begin = self.start + Span::from_ns(last * interval.as_ns());
            self.current = (begin, begin + interval);
        }
        &mut self.open[place]
    }

    /// The book of the latest interval.
    pub(super) fn latest(&mut self) -> &mut TrialCounts {
        if self.open.is_empty() {
            self.open.push_back(Box::new(self.blank.clone()));
        }
        let last = self.open.len() - 1;
        &mut self.open[last]
    }

    /// Closes the first book where its interval ended `patience` before `now`.
    pub(super) fn close_first(
        &mut self,
        now: Timestamp<Monotonic>,
        patience: Span,
    ) -> Option<Closed> {
        let interval = self.interval?.as_ns();
        let end = self.start + Span::from_ns((self.first as i64 + 1) * interval);
        // The latest book stays open: its interval may be told of later.
        (now - end > patience && self.open.len() > 1).then(|| self.close()).flatten()
    }

    /// What stands in all of them, closed or open, and the times of the latest one that has all its
    /// requests, or else of the only one.
    pub(super) fn so_far(&self, told: &mut SoFar) {
        told.clear();
        told.counts = self.closed;
        self.open.iter().for_each(|book| told.counts.add(&book.look()));
        if let Some(book) = self.open.get(self.open.len().saturating_sub(2)) {
            told.latency.merge(&book.rtt);
            told.lateness.merge(&book.lateness);
        }
    }

    fn close(&mut self) -> Option<Closed> {
        let book = self.open.pop_front()?;
        self.closed.add(&book.look());
        self.first += 1;
        Some((self.first - 1, book))
    }

    /// All that are open, in order.
    pub(super) fn close_all(mut self) -> Vec<Closed> {
        std::iter::from_fn(|| self.close()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp<Monotonic> = Timestamp::from_ns(5_000_000_000);

    fn at(ms: i64) -> Timestamp<Monotonic> {
        START + Span::from_ms(ms)
    }

    #[test]
    fn one_book_is_for_all_where_there_are_no_intervals() {
        let mut books = Books::new(START, None, TrialCounts::default());
        for ms in [-1, 0, 1_000_000] {
            books.of(at(ms)).sent += 1;
        }
        assert!(books.close_first(at(1 << 40), Span::ZERO).is_none());
        let all = books.close_all();
        assert_eq!((all.len(), all[0].0, all[0].1.sent), (1, 0, 3));
    }

    #[test]
    fn requests_stand_in_the_book_of_their_interval() {
        let mut books = Books::new(START, Some(Span::from_ms(100)), TrialCounts::default());
        for ms in [0, 99, 100, 350, 110, -1, 399] {
            books.of(at(ms)).sent += 1;
        }
        let closed = books.close_first(at(121), Span::from_ms(20)).unwrap();
        assert_eq!((closed.0, closed.1.sent), (0, 3));
        assert!(books.close_first(at(219), Span::from_ms(20)).is_none());
        books.of(at(50)).late += 1; // too late for its own book
        let rest: Vec<_> =
            books.close_all().into_iter().map(|(n, c)| (n, c.sent, c.late)).collect();
        assert_eq!(rest, [(1, 2, 1), (2, 0, 0), (3, 2, 0)]);
    }

    #[test]
    fn what_is_told_meanwhile_stands_in_all_books() {
        let mut books = Books::new(START, Some(Span::from_ms(100)), TrialCounts::default());
        let mut told = SoFar::default();
        for (ms, rtt) in [(0, 10), (110, 20), (210, 30)] {
            let book = books.of(at(ms));
            (book.sent, book.received) = (2, 1);
            book.rtt.record(rtt);
        }
        for _ in 0..2 {
            books.so_far(&mut told);
            assert_eq!((told.counts.sent, told.counts.received), (6, 3));
            // The last interval is still going on.
            assert_eq!((told.latency.count(), told.latency.max()), (1, Some(20)));
            books.close_first(at(250), Span::ZERO).unwrap();
        }
        let mut only = Books::new(START, None, TrialCounts::default());
        only.of(at(1)).rtt.record(7);
        only.so_far(&mut told);
        assert_eq!((told.counts.sent, told.latency.max()), (0, Some(7)));
    }

    #[test]
    fn the_latest_book_is_not_closed_before_the_end() {
        let mut books = Books::new(START, Some(Span::from_ms(100)), TrialCounts::default());
        assert!(books.close_first(at(100_000), Span::ZERO).is_none());
        books.latest().refused += 1;
        assert_eq!(books.close_all()[0].1.refused, 1);
    }
}
