//! Renewal of keys during a load: a server that refuses all cookies, or authenticates no request
//! any more, has lost its keys (RFC 8915, section 5.7). A separate thread runs the NTS-KE
//! exchanges, so that the lanes never wait; they adopt the new keys between two requests.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use horolog_record::{Finding, FindingCode, Severity};

use super::{NtsError, SessionSecrets};

/// Interval at which the lanes' counters are checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Number of successive checks with requests and without an authentic reply after which an outage
/// is assumed; the first check does not count.
const OUTAGE_CHECKS: u32 = 2;
/// Shortest and longest pause between two renewal attempts (RFC 8915, section 4.2). The pause grows
/// by half after each attempt, until a reply is authentic.
const RETRY_MIN: Duration = Duration::from_secs(10);
const RETRY_MAX: Duration = Duration::from_hours(1);

/// NTS counters of one lane, on their own cache line and written only by that lane.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct LaneNtsCounters {
    sealed: AtomicU64,
    authentic: AtomicU64,
    refused: AtomicU64,
}

impl LaneNtsCounters {
    pub(super) fn sealed(&self) {
        add_one(&self.sealed);
    }

    pub(super) fn authentic(&self) {
        add_one(&self.authentic);
    }

    pub(super) fn refused(&self) {
        add_one(&self.refused);
    }
}

/// Increments a counter; with a single writer this needs no atomic addition.
fn add_one(counter: &AtomicU64) {
    counter.store(counter.load(Relaxed) + 1, Relaxed);
}

/// State of session renewal, shared by the lanes, the renewal thread and the result.
#[derive(Default)]
pub(super) struct SessionRenewalState {
    lanes: Mutex<Vec<Arc<LaneNtsCounters>>>,
    generation: AtomicU64,
    newest: Mutex<Vec<SessionSecrets>>,
    failed: AtomicU64,
    failure: Mutex<Option<String>>,
}

fn lock_ignoring_poison<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SessionRenewalState {
    /// Returns the counters of one more lane.
    pub(super) fn register_lane(&self) -> Arc<LaneNtsCounters> {
        let counts = Arc::new(LaneNtsCounters::default());
        lock_ignoring_poison(&self.lanes).push(Arc::clone(&counts));
        counts
    }

    /// Returns the number of renewals.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Acquire)
    }

    /// Returns the sessions of the last renewal; empty before the first.
    pub(super) fn newest_sessions(&self) -> MutexGuard<'_, Vec<SessionSecrets>> {
        lock_ignoring_poison(&self.newest)
    }

    fn sum(&self, count: fn(&LaneNtsCounters) -> &AtomicU64) -> u64 {
        lock_ignoring_poison(&self.lanes).iter().map(|lane| count(lane).load(Relaxed)).sum()
    }

    fn try_renewal(&self, establish: &dyn Fn() -> Result<Vec<SessionSecrets>, NtsError>) {
        match establish() {
            Ok(fresh) => {
                *self.newest_sessions() = fresh;
                self.generation.fetch_add(1, Release);
            }
            Err(error) => {
                self.failed.fetch_add(1, Relaxed);
                lock_ignoring_poison(&self.failure).get_or_insert_with(|| error.to_string());
            }
        }
    }

    /// Returns the finding at the end of a run; `can_renew` is true if there was a renewal thread.
    pub(super) fn finding(&self, can_renew: bool) -> Option<Finding> {
        let (renewed, failed) = (self.generation(), self.failed.load(Relaxed));
        let refused = self.sum(|lane| &lane.refused);
        if renewed + failed + refused == 0 {
            return None;
        }
        let mut message = format!(
            "the server refused NTS cookies {refused} times (NTSN); keys were renewed {renewed} times, \
             {failed} attempts failed"
        );
        if let Some(failure) = &*lock_ignoring_poison(&self.failure) {
            message = format!("{message}; first error: {failure}");
        }
        let advice = if can_renew {
            "the server restarted with other keys, or its NTS-KE belongs to another server; \
             refused requests count as lost with an invalid reply (nts)"
        } else {
            "the server lacks the keys of these sessions, or dropped them: run NTS-KE again"
        };
        Some(Finding {
            code: FindingCode::KeysRenewed,
            severity: Severity::Warning,
            message,
            advice: advice.to_owned(),
            trial: None,
        })
    }
}

/// Handle of the renewal thread; dropping it ends the thread.
pub(super) struct RenewalThread {
    refusal_sender: SyncSender<()>,
}

impl RenewalThread {
    pub(super) fn start(
        renewal: Arc<SessionRenewalState>,
        establish: impl Fn() -> Result<Vec<SessionSecrets>, NtsError> + Send + 'static,
    ) -> std::io::Result<Self> {
        let (refusal_sender, refusals) = sync_channel(1);
        let run = move || run(&renewal, &refusals, &establish);
        // The thread is not joined: it may be in the middle of an NTS-KE exchange.
        thread::Builder::new().name("nts-renewal".to_owned()).spawn(run)?;
        Ok(Self { refusal_sender })
    }

    /// Reports a refused cookie to the thread, without blocking.
    pub(super) fn refused(&self) {
        let _ = self.refusal_sender.try_send(());
    }
}

/// Checks the lanes' counters and renews keys, until the handle is dropped.
fn run(
    renewal: &SessionRenewalState,
    refusals: &Receiver<()>,
    establish: &dyn Fn() -> Result<Vec<SessionSecrets>, NtsError>,
) {
    let (mut unanswered, mut pause) = (NtsOutageDetector::default(), RenewalPause::default());
    loop {
        let is_refused = match refusals.recv_timeout(CHECK_INTERVAL) {
            Ok(()) => true,
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let authentic = renewal.sum(|lane| &lane.authentic);
        let is_unanswered =
            !is_refused && unanswered.check(renewal.sum(|lane| &lane.sealed), authentic);
        if (is_refused || is_unanswered) && pause.is_over(Instant::now(), is_refused) {
            pause.begin(Instant::now(), authentic, is_refused);
            renewal.try_renewal(establish);
            // Requests sent with the old keys are still refused for a while.
            thread::sleep(CHECK_INTERVAL);
            while refusals.try_recv().is_ok() {}
            unanswered = NtsOutageDetector::default();
        }
    }
}

/// Detector of an outage: counts consecutive checks without an authentic reply.
#[derive(Default)]
struct NtsOutageDetector {
    last: (u64, u64),
    checks: u32,
}

impl NtsOutageDetector {
    /// Compares the totals of authenticated requests sent and of authentic replies with those of
    /// the last check; returns true if an outage is assumed.
    fn check(&mut self, sealed: u64, authentic: u64) -> bool {
        let (before, answered) = std::mem::replace(&mut self.last, (sealed, authentic));
        match (sealed > before, authentic > answered) {
            (_, true) => self.checks = 0,
            (true, false) => self.checks += 1,
            (false, false) => {}
        }
        // The first check has no earlier totals to compare with.
        self.checks > OUTAGE_CHECKS
    }
}

/// Pause between two renewal attempts.
#[derive(Default)]
struct RenewalPause {
    until: Option<Instant>,
    length: Duration,
    /// Authentic replies before the last attempt.
    authentic: u64,
    is_after_outage: bool,
}

impl RenewalPause {
    /// Returns true if an attempt may begin at `now`. A refusal that follows an outage ends the
    /// pause, because it shows that the server is available again.
    fn is_over(&self, now: Instant, is_refusal: bool) -> bool {
        (is_refusal && self.is_after_outage) || self.until.is_none_or(|until| now >= until)
    }

    fn begin(&mut self, now: Instant, authentic: u64, is_refusal: bool) {
        let grown = if authentic > self.authentic { RETRY_MIN } else { self.length * 3 / 2 };
        self.length = grown.clamp(RETRY_MIN, RETRY_MAX);
        (self.until, self.authentic) = (Some(now + self.length), authentic);
        self.is_after_outage = !is_refusal;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_unresponsive_when_requests_go_out_and_no_authentic_reply_arrives() {
        let mut unanswered = NtsOutageDetector::default();
        let counts = [(10, 10), (20, 20), (30, 20), (30, 20), (40, 20), (50, 20)];
        let results: Vec<_> =
            counts.map(|(sealed, authentic)| unanswered.check(sealed, authentic)).into();
        assert_eq!(results, [false, false, false, false, false, true]);
        assert!(!unanswered.check(60, 21), "it is there again");
    }

    #[test]
    fn attempts_keep_their_distance_until_replies_are_authentic() {
        let (mut pause, begun) = (RenewalPause::default(), Instant::now());
        let at = |seconds| begun + Duration::from_secs(seconds);
        assert!(pause.is_over(at(0), false));
        pause.begin(at(0), 5, false);
        assert!(!pause.is_over(at(9), false) && pause.is_over(at(10), false));
        assert!(pause.is_over(at(1), true), "the first refusal after silence");
        pause.begin(at(1), 5, true);
        assert!(!pause.is_over(at(15), true) && pause.is_over(at(16), true));
        pause.begin(at(16), 6, true);
        assert!(pause.is_over(at(26), true));
    }

    #[test]
    fn refusals_lead_to_new_keys_and_are_reported() {
        let renewal = Arc::new(SessionRenewalState::default());
        assert!(renewal.finding(true).is_none());
        let renewer = RenewalThread::start(Arc::clone(&renewal), || Ok(Vec::new())).unwrap();
        renewal.register_lane().refused();
        renewer.refused();
        let begun = Instant::now();
        while renewal.generation() == 0 {
            assert!(begun.elapsed() < Duration::from_secs(20));
            thread::sleep(Duration::from_millis(1));
        }
        let finding = renewal.finding(true).unwrap();
        assert_eq!(finding.code, FindingCode::KeysRenewed);
        assert!(finding.message.contains("refused NTS cookies 1 times"), "{}", finding.message);
    }
}
