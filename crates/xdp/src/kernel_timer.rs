//! Delay of handlers of the kernel's timer: `timer.bpf.c`, armed from the core to be measured. The
//! handler is the callback of a BPF timer, which the timer's interrupt runs as a soft interrupt
//! right after itself. Requires absolute expiry (Linux 6.4).

use std::io;
use std::mem::offset_of;
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use horolog_sys::clock::MonotonicClock;
use horolog_time::{Clock, Span};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::XdpError;
use crate::abi::RawHistogram;
use crate::map::SharedArray;
use crate::object::LoadedObject;
use crate::test_run;

const NAME: &str = "timer";
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/timer.o"));
/// Frame of the call; the program reads no byte of it.
const FRAME: [u8; 64] = [0; 64];
/// Time until the first expiry.
const HEAD_START: Span = Span::from_ms(1);
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// `struct timer_plan`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct TimerPlan {
    due_ns: u64,
    left: u64,
    distance_min_ns: u64,
    distance_span_ns: u64,
    flags: u64,
    error: u64,
    elsewhere: u64,
    core: u64,
}

const _: () = assert!(size_of::<TimerPlan>() == 64);

/// Delays of the handler.
#[derive(Clone, Debug)]
pub struct KernelDelays {
    /// Time from each expiry to the handler's first reading of the clock, in ns.
    pub delays: Box<RawHistogram>,
    /// Expiries whose handler ran on another core than the requested one.
    pub elsewhere: u64,
}

/// A loaded program.
pub struct KernelTimer {
    plans: SharedArray<TimerPlan>,
    delays: SharedArray<RawHistogram>,
    loaded: LoadedObject,
}

impl KernelTimer {
    /// Loads the program.
    pub fn load() -> Result<Self, XdpError> {
        let loaded = LoadedObject::load(NAME, OBJECT, |_| Ok(()))?;
        let plans = SharedArray::map(loaded.map("plans")?.as_fd(), 1)?;
        let delays = SharedArray::map(loaded.map("delays")?.as_fd(), 1)?;
        Ok(Self { plans, delays, loaded })
    }

    /// Lets the timer expire `count` times on the core that the calling thread is pinned to, at
    /// random distances between these two, and returns the delays of its handler; fewer if
    /// `is_over` returns true first.
    pub fn run(
        &self,
        count: u64,
        (least, most): (Duration, Duration),
        is_over: &dyn Fn() -> bool,
    ) -> Result<KernelDelays, XdpError> {
        let distance_min_ns = least.as_nanos() as u64;
        let first = MonotonicClock.now() + HEAD_START;
        self.delays.clear(0);
        self.delays.write_part(0, offset_of!(RawHistogram, min), &u64::MAX);
        self.plans.write(
            0,
            &TimerPlan {
                due_ns: first.as_ns().unsigned_abs(),
                left: count,
                distance_min_ns,
                distance_span_ns: (most.as_nanos() as u64).saturating_sub(distance_min_ns),
                ..TimerPlan::default()
            },
        );
        test_run::once(self.loaded.program("arm")?, &FRAME)?;
        // Only a defect of the kernel can keep a timer from expiring.
        let timeout = most * u32::try_from(count).unwrap_or(u32::MAX) * 4 + Duration::from_secs(5);
        let started = Instant::now();
        while self.plans.read(0).left > 0 && started.elapsed() < timeout && !is_over() {
            thread::sleep(POLL_INTERVAL);
        }
        let plan = self.plans.read(0);
        // The pending callback finds nothing left to do.
        self.plans.write(0, &TimerPlan { left: 0, ..plan });
        if plan.error != 0 {
            return Err(XdpError::Run(io::Error::from(io::ErrorKind::Unsupported)));
        }
        Ok(KernelDelays { delays: self.delays.read_boxed(0), elsewhere: plan.elsewhere })
    }
}
