//! The thread that brings pulses and sentences to the calibrator. It waits for pulses; sentences
//! carry the time at which they began and can be fetched later.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use horolog_sys::affinity::{Scheduling, pin_to_core, prefer_real_time};

use super::pulse_input::PulseInput;
use super::{Shared, lock, look};
use crate::Fault;
use crate::gnss::{Heard, Reader, silence};

/// How long it waits for a pulse before it fetches sentences.
const WAIT: Duration = Duration::from_millis(100);
/// Above the clock thread, which has the lowest priority that is real-time: what is done here is
/// little and has to be done soon.
const PRIORITY: i32 = 2;
/// Waits after which a silent line is doubted.
const SILENCE: u32 = 30;

/// The thread; dropping it ends it.
pub(super) struct CalibrationThread {
    stop: Arc<AtomicBool>,
    real_time: Arc<AtomicBool>,
    core: Option<usize>,
    thread: Option<JoinHandle<()>>,
}

impl CalibrationThread {
    /// Begins to read and to wait, on a core of its own where one is given.
    pub(super) fn start(
        shared: Shared,
        mut reader: Reader,
        mut pulse: Option<PulseInput>,
        core: Option<usize>,
    ) -> io::Result<Self> {
        let (stop, real_time) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let (stopped, is_real_time) = (Arc::clone(&stop), Arc::clone(&real_time));
        let work = move || {
            // A core may have gone; then it runs wherever it can.
            let _ = core.map(pin_to_core);
            let scheduling = prefer_real_time(PRIORITY);
            is_real_time.store(matches!(scheduling, Scheduling::RealTime), Ordering::Relaxed);
            let mut silent = 0;
            while !stopped.load(Ordering::Relaxed) {
                let faults = [
                    wait(&shared, pulse.as_mut()).err(),
                    listen(&shared, &mut reader, &mut silent).err(),
                ];
                let mut calibrator = lock(&shared);
                calibrator.broken = faults.into_iter().flatten().next();
                calibrator.advance(&look());
            }
            lock(&shared).let_go();
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
        // A panic of it has said so on stderr.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Waits for an edge, or as long without a device.
fn wait(shared: &Shared, pulse: Option<&mut PulseInput>) -> Result<(), Fault> {
    let Some(pulse) = pulse else {
        thread::sleep(WAIT);
        return Ok(());
    };
    if let Some(edge) = pulse.wait(WAIT)? {
        lock(shared).edge(edge);
    }
    Ok(())
}

/// Fetches sentences; a line over which none comes is a fault after a while.
fn listen(shared: &Shared, reader: &mut Reader, silent: &mut u32) -> Result<(), Fault> {
    let heard: Heard = reader.take().map_err(|error| {
        Fault::Silent(format!("the thread that reads its line cannot be started: {error}"))
    })?;
    lock(shared).damaged(heard.counts.damaged());
    if !heard.leaps.is_empty() {
        let mut calibrator = lock(shared);
        heard.leaps.iter().for_each(|report| calibrator.leap_report(report));
    }
    if heard.sentences.is_empty() {
        *silent = silent.saturating_add(1);
        let is_over = heard.ended.is_some() || *silent > SILENCE;
        return if is_over { Err(silence(&heard)) } else { Ok(()) };
    }
    *silent = 0;
    let mut calibrator = lock(shared);
    for (sentence, began) in heard.sentences {
        calibrator.sentence(sentence, began);
    }
    Ok(())
}
