//! Count of the server's replies by a packet capture, as a check of the generator's count: a
//! separate `AF_PACKET` socket with a filter for the server's address and port.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use horolog_io::{
    Batch, BatchDevice, FrameSelection, PacketSocketDevice, PacketSocketOptions, UdpFilter,
};
use horolog_lab::LabHost;
use horolog_load::{LoadError, LoadOptions, LoadRun};
use horolog_record::{CaptureCheck, LoadResult, Trial};

use crate::observer::LoadTrialObserver;
use crate::{ExperimentError, ExperimentObserver};

/// Most frames received in one call.
const FRAMES_PER_BATCH: usize = 64;
/// Bytes captured of each frame; frames are only counted, so their headers suffice.
const SNAP_LEN_BYTES: usize = 128;
/// Size of the receive buffer in bytes; it holds one second of replies at 100,000/s.
const RECEIVE_BUFFER_BYTES: usize = 64 << 20;
/// Timeout of one receive call, after which the end of the run is checked.
const RECEIVE_TIMEOUT: Duration = Duration::from_millis(20);

/// Runs a load in `host`, counts the replies of `server` by a capture meanwhile, and returns both
/// counts and the number of frames that the capture dropped.
pub(super) fn compare_reply_counts(
    host: &LabHost,
    server: SocketAddr,
    options: LoadOptions,
    observer: &dyn ExperimentObserver,
) -> Result<CaptureCheck, ExperimentError> {
    let interface = host.first_interface().name.clone();
    host.run(move || {
        let mut device = PacketSocketDevice::open(&interface, &reply_capture_options(server))
            .map_err(capture_failure)?;
        let run_ended = AtomicBool::new(false);
        let (captured, result) = thread::scope(|scope| {
            let counter = scope.spawn(|| count_frames(&mut device, &run_ended));
            observer.measurement_started("capture: ".to_owned());
            let mut trials = LoadTrialObserver::new(observer);
            let result: Result<LoadResult, LoadError> =
                LoadRun::prepare(options).and_then(|load| load.run(&mut trials));
            observer.measurement_ended();
            run_ended.store(true, Ordering::Relaxed);
            (counter.join(), result)
        });
        let captured = captured.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let counted = result?.trials.iter().map(trial_replies).sum();
        let dropped = device.dropped().map_err(capture_failure)?;
        Ok(CaptureCheck { counted, captured: captured.map_err(capture_failure)?, dropped })
    })?
}

fn reply_capture_options(server: SocketAddr) -> PacketSocketOptions {
    PacketSocketOptions {
        slots: FRAMES_PER_BATCH,
        selection: FrameSelection::Udp(UdpFilter {
            source: server.ip(),
            source_port: Some(server.port()),
            destination_port: None,
            destination_network: None,
        }),
        receive_timestamps: false,
        receive_buffer: Some(RECEIVE_BUFFER_BYTES),
        ..PacketSocketOptions::default()
    }
}

/// Counts captured frames until `run_ended` is set and no more are queued.
fn count_frames(device: &mut PacketSocketDevice, run_ended: &AtomicBool) -> std::io::Result<u64> {
    let mut frames = Batch::new(FRAMES_PER_BATCH, SNAP_LEN_BYTES);
    let mut count = 0;
    loop {
        // Loaded before the receive call, so that frames queued before the end are still counted.
        let last = run_ended.load(Ordering::Relaxed);
        match device.receive(&mut frames, RECEIVE_TIMEOUT)? {
            0 if last => return Ok(count),
            fetched => count += fetched as u64,
        }
    }
}

/// Returns the number of replies that the generator counted in a trial: valid, duplicate, late and
/// invalid ones.
fn trial_replies(trial: &Trial) -> u64 {
    let counted = [trial.received, trial.duplicate, trial.late, trial.invalid_total()];
    counted.iter().sum()
}

fn capture_failure(error: impl std::fmt::Display) -> ExperimentError {
    ExperimentError::host(format!("cannot capture replies: {error}"))
}
