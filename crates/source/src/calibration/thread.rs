//! Thread that passes pulses and sentences to the calibrator. It blocks on pulses only: sentences
//! carry the arrival time of their first character, so they can be fetched later.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use horolog_sys::affinity::{RealTimeSchedulingOutcome, pin_to_core, try_real_time};
use horolog_sys::clock::ClockMonotonic;
use horolog_time::Clock;

use super::pulse_input::PulseInput;
use super::{SharedCalibrator, lock, read_clocks};
use crate::SourceError;
use crate::gnss::{CollectedReceiverInput, ReceiverLineReader, no_time_reason};

/// Longest wait for a pulse before sentences are fetched.
const PULSE_TIMEOUT: Duration = Duration::from_millis(100);
/// Real-time priority, one above the clock thread: the work is short and urgent.
const REAL_TIME_PRIORITY: i32 = 2;
/// Consecutive waits without a sentence after which the line is in error.
const IDLE_WAITS_MAX: u32 = 30;

/// Calibration thread; dropping it ends it.
pub(super) struct CalibrationThread {
    stop: Arc<AtomicBool>,
    real_time: Arc<AtomicBool>,
    core: Option<usize>,
    thread: Option<JoinHandle<()>>,
}

impl CalibrationThread {
    /// Starts the thread, pinned to `core` if there is one.
    pub(super) fn start(
        shared: SharedCalibrator,
        mut reader: ReceiverLineReader,
        mut pulse: Option<PulseInput>,
        core: Option<usize>,
    ) -> io::Result<Self> {
        let (stop, real_time) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let (stopped, is_real_time) = (Arc::clone(&stop), Arc::clone(&real_time));
        let work = move || {
            // If the core has gone offline, the thread runs on any.
            let _ = core.map(pin_to_core);
            let scheduling = try_real_time(REAL_TIME_PRIORITY);
            is_real_time.store(
                matches!(scheduling, RealTimeSchedulingOutcome::RealTime),
                Ordering::Relaxed,
            );
            let mut idle_waits = 0;
            while !stopped.load(Ordering::Relaxed) {
                let errors = [
                    wait_for_pulse(&shared, pulse.as_mut()).err(),
                    fetch_sentences(&shared, &mut reader, &mut idle_waits).err(),
                ];
                let mut calibrator = lock(&shared);
                calibrator.input_error = errors.into_iter().flatten().next();
                calibrator.advance(&read_clocks());
            }
            lock(&shared).release_clock();
        };
        let thread = thread::Builder::new().name("calibration".into()).spawn(work)?;
        Ok(Self { stop, real_time, core, thread: Some(thread) })
    }

    pub(super) const fn core(&self) -> Option<usize> {
        self.core
    }

    pub(super) fn is_real_time(&self) -> bool {
        self.real_time.load(Ordering::Relaxed)
    }

    pub(super) fn has_died(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }
}

impl Drop for CalibrationThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // A panic of the thread has already been reported on stderr.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Waits up to [`PULSE_TIMEOUT`] for an edge; without a pulse input, sleeps that long.
fn wait_for_pulse(
    shared: &SharedCalibrator,
    pulse: Option<&mut PulseInput>,
) -> Result<(), SourceError> {
    let Some(pulse) = pulse else {
        thread::sleep(PULSE_TIMEOUT);
        return Ok(());
    };
    if let Some(edge) = pulse.wait(PULSE_TIMEOUT)? {
        lock(shared).push_edge(edge);
    }
    Ok(())
}

/// Passes the input of the line to the calibrator; an error if the line is closed, had no sentences
/// for too long, or cannot be read.
fn fetch_sentences(
    shared: &SharedCalibrator,
    reader: &mut ReceiverLineReader,
    idle_waits: &mut u32,
) -> Result<(), SourceError> {
    let input: CollectedReceiverInput = reader.take_input().map_err(|error| {
        SourceError::NoData(format!("cannot start the thread that reads its line: {error}"))
    })?;
    let mut calibrator = lock(shared);
    calibrator.push_line_input(&input);
    if input.sentences.is_empty() {
        *idle_waits = idle_waits.saturating_add(1);
        let is_idle = input.ended.is_some() || *idle_waits > IDLE_WAITS_MAX;
        return if is_idle { Err(no_time_reason(&input, ClockMonotonic.now())) } else { Ok(()) };
    }
    *idle_waits = 0;
    for (sentence, began) in input.sentences {
        calibrator.push_sentence(sentence, began);
    }
    Ok(())
}
