//! Latency of kernel timer callbacks, measured by `timer.bpf.c` on the CPU that arms the timer. The
//! callback of a BPF timer runs in the softirq of the timer interrupt. Requires absolute expiry
//! (`BPF_F_TIMER_ABS`, Linux 6.4).

use std::io;
use std::mem::offset_of;
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use horolog_sys::clock::ClockMonotonic;
use horolog_time::{Clock, Span};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::XdpError;
use crate::abi::RawHistogram;
use crate::map::MappedArrayMap;
use crate::object::LoadedBpfObject;
use crate::test_run;

const NAME: &str = "timer";
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/timer.o"));
/// Frame of the test run that arms the timer; the program does not read it.
const FRAME: [u8; 64] = [0; 64];
/// Time until the first expiry.
const FIRST_EXPIRY_DELAY: Span = Span::from_ms(1);
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// `struct timer_plan`: schedule of a measurement (random intervals) and its progress.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct KernelTimerSchedule {
    due_ns: u64,
    remaining: u64,
    interval_min_ns: u64,
    interval_range_ns: u64,
    flags: u64,
    error: u64,
    on_other_core: u64,
    core: u64,
}

const _: () = assert!(size_of::<KernelTimerSchedule>() == 64);

/// Delays of the timer callback in one measurement.
#[derive(Clone, Debug)]
pub struct TimerHandlerDelays {
    /// Time from each expiry to the callback's first reading of the clock, in ns.
    pub delays: Box<RawHistogram>,
    /// Expiries whose callback ran on another CPU than the one that armed the timer.
    pub on_other_core: u64,
}

/// BPF program that arms a kernel timer and measures the delay of its callback.
pub struct KernelTimerProgram {
    plans: MappedArrayMap<KernelTimerSchedule>,
    delays: MappedArrayMap<RawHistogram>,
    loaded: LoadedBpfObject,
}

impl KernelTimerProgram {
    /// Loads the program, without arming the timer.
    pub fn load() -> Result<Self, XdpError> {
        let loaded = LoadedBpfObject::load(NAME, OBJECT, |_| Ok(()))?;
        let plans = MappedArrayMap::map(loaded.map("plans")?.as_fd(), 1)?;
        let delays = MappedArrayMap::map(loaded.map("delays")?.as_fd(), 1)?;
        Ok(Self { plans, delays, loaded })
    }

    /// Lets the timer expire `count` times on the CPU to which the calling thread is pinned, at
    /// random intervals between the two bounds, and returns the delays of its callback. They are
    /// fewer than `count` if `should_stop` returns true first, or if that takes four times as long
    /// as `count` of the longest intervals plus 5 s. Fails if the kernel cannot arm the timer.
    pub fn run(
        &self,
        count: u64,
        (interval_min, interval_max): (Duration, Duration),
        should_stop: &dyn Fn() -> bool,
    ) -> Result<TimerHandlerDelays, XdpError> {
        let interval_min_ns = interval_min.as_nanos() as u64;
        let first = ClockMonotonic.now() + FIRST_EXPIRY_DELAY;
        self.delays.clear(0);
        self.delays.write_part(0, offset_of!(RawHistogram, min), &u64::MAX);
        self.plans.write(
            0,
            &KernelTimerSchedule {
                due_ns: first.as_ns().unsigned_abs(),
                remaining: count,
                interval_min_ns,
                interval_range_ns: (interval_max.as_nanos() as u64).saturating_sub(interval_min_ns),
                ..KernelTimerSchedule::default()
            },
        );
        test_run::run_once(self.loaded.program("arm")?, &FRAME)?;
        // Upper limit of the wait: a timer that does not expire is a kernel defect.
        let timeout =
            interval_max * u32::try_from(count).unwrap_or(u32::MAX) * 4 + Duration::from_secs(5);
        let started = Instant::now();
        while self.plans.read(0).remaining > 0 && started.elapsed() < timeout && !should_stop() {
            thread::sleep(POLL_INTERVAL);
        }
        let plan = self.plans.read(0);
        // Stops the pending callback: it does not arm the timer again.
        self.plans.write(0, &KernelTimerSchedule { remaining: 0, ..plan });
        if plan.error != 0 {
            return Err(XdpError::Run(io::Error::from(io::ErrorKind::Unsupported)));
        }
        Ok(TimerHandlerDelays {
            delays: self.delays.read_boxed(0),
            on_other_core: plan.on_other_core,
        })
    }
}
