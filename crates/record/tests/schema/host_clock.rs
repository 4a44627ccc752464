//! The result of a look at a host's clocks against its golden file, and any that the types allow.

use horolog_record::{
    ClockFacts, ClocksourceFacts, CoreMonotonicity, HOST_CLOCK_SCHEMA, HostClockResult, HzSource,
    IdleState, KernelDiscipline, PhcFacts, RtcFacts, TickFacts, WakeupFacts,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::Value;

use crate::choices::{HZ_SOURCES, LEAP_STATES, TICK_MODES};
use crate::golden::{new_names, read, with_unknown_fields, written};
use crate::strategies::{chosen, finding, host, number};

const CLOCK: &str = include_str!("host_clock.json");

pub(crate) fn result() -> impl Strategy<Value = HostClockResult> {
    let facts = (any::<String>(), vec(any::<String>(), 0..3), host(), tick(), clocksource());
    let clocks = (vec(clock(), 0..3), option::of(number()), any::<u64>(), option::of(cores()));
    let others = (vec(rtc(), 0..3), vec(phc(), 0..3), option::of(kernel()), waking());
    let findings = vec(finding(), 0..3);
    (facts, clocks, others, findings).prop_map(|(facts, clocks, others, findings)| {
        let (started, command, host, tick, clocksource) = facts;
        let (clocks, system_call_ns, watched_ns, cores) = clocks;
        let (rtcs, phcs, kernel, waking) = others;
        HostClockResult {
            schema: HOST_CLOCK_SCHEMA.to_owned(),
            started,
            command,
            host,
            tick,
            clocksource,
            clocks,
            system_call_ns,
            observed_ns: watched_ns,
            cores,
            rtcs,
            phcs,
            kernel,
            waking,
            findings,
        }
    })
}

pub(crate) fn tick() -> impl Strategy<Value = TickFacts> {
    let known = (option::of(any::<u32>()), option::of(chosen(HZ_SOURCES)));
    let known = (known, option::of(any::<String>()), option::of(chosen(TICK_MODES)));
    let times: [_; 4] = std::array::from_fn(|_| option::of(any::<u64>()));
    let days: [_; 3] = std::array::from_fn(|_| option::of(number()));
    let rest = (option::of(any::<bool>()), option::of(any::<u32>()), any::<u32>());
    (known, times, days, rest).prop_map(|(known, times, days, rest)| {
        let ((hz, known_by), config_file, mode) = known;
        let [tick_ns, tick_measured_ns, coarse_resolution_ns, jiffies] = times;
        let [wrap_32_days, wrap_64_days, next_wrap_32_days] = days;
        let (high_resolution, user_hz, jiffies_bits) = rest;
        TickFacts {
            hz,
            known_by,
            config_file,
            tick_ns,
            tick_measured_ns,
            coarse_resolution_ns,
            mode,
            high_resolution,
            user_hz,
            jiffies,
            jiffies_bits,
            wrap_32_days,
            wrap_64_days,
            next_wrap_32_days,
        }
    })
}

fn clocksource() -> impl Strategy<Value = ClocksourceFacts> {
    let texts = || vec(any::<String>(), 0..3);
    (option::of(any::<String>()), texts(), texts()).prop_map(|(current, available, tsc_flags)| {
        ClocksourceFacts { current, available, tsc_flags }
    })
}

fn clock() -> impl Strategy<Value = ClockFacts> {
    let named = (any::<String>(), option::of(any::<String>()));
    let steps = (option::of(any::<u64>()), option::of(any::<u64>()));
    let figures: [_; 3] = std::array::from_fn(|_| option::of(number()));
    (named, steps, figures, option::of(any::<bool>())).prop_map(
        |((name, error), (resolution_ns, step_ns), figures, by_vdso)| {
            let [cost_ns, rate_ppm, rate_error_bound_ppm] = figures;
            ClockFacts {
                name,
                error,
                resolution_ns,
                step_ns,
                cost_ns,
                by_vdso,
                rate_ppm,
                rate_error_bound_ppm,
            }
        },
    )
}

fn cores() -> impl Strategy<Value = CoreMonotonicity> {
    (any::<usize>(), any::<[u64; 3]>()).prop_map(
        |(cores, [handed_over, backwards, backwards_max_ns])| CoreMonotonicity {
            cores,
            handoffs: handed_over,
            backwards,
            backwards_max_ns,
        },
    )
}

fn rtc() -> impl Strategy<Value = RtcFacts> {
    let texts = (any::<String>(), option::of(any::<String>()), option::of(any::<String>()));
    let offset = (option::of(any::<i64>()), option::of(any::<u64>()));
    (texts, option::of(any::<bool>()), offset).prop_map(
        |((name, driver, error), set_system_clock, (system_ahead_ns, error_bound_ns))| RtcFacts {
            name,
            driver,
            set_system_clock,
            system_ahead_ns,
            error_bound_ns,
            error,
        },
    )
}

fn phc() -> impl Strategy<Value = PhcFacts> {
    let texts = (any::<String>(), option::of(any::<String>()), option::of(any::<String>()));
    let offset = (option::of(any::<i64>()), option::of(any::<u64>()));
    (texts, offset).prop_map(|((device, clock_name, error), (system_ahead_ns, error_bound_ns))| {
        PhcFacts { device, clock_name, system_ahead_ns, error_bound_ns, error }
    })
}

fn kernel() -> impl Strategy<Value = KernelDiscipline> {
    (any::<bool>(), chosen(LEAP_STATES), number(), any::<[i64; 2]>(), any::<i32>()).prop_map(
        |(synchronised, leap, frequency_ppb, errors, tai_offset_s)| {
            let [maximum_error_ns, estimated_error_ns] = errors;
            KernelDiscipline {
                synchronised,
                leap,
                frequency_ppb,
                maximum_error_ns,
                estimated_error_ns,
                tai_offset_s,
            }
        },
    )
}

fn waking() -> impl Strategy<Value = WakeupFacts> {
    let texts = (option::of(any::<String>()), option::of(any::<String>()));
    let state = (any::<String>(), any::<u64>(), any::<bool>()).prop_map(
        |(name, exit_latency_ns, disabled)| IdleState { name, exit_latency_ns, disabled },
    );
    let lists = (vec(any::<String>(), 0..3), vec(state, 0..3));
    let rest = (option::of(any::<u64>()), option::of(number()), any::<[i64; 2]>());
    (texts, lists, rest).prop_map(|((idle_driver, hypervisor), lists, rest)| {
        let ((governors, idle_states), (timer_slack_ns, stolen_share, moved)) = (lists, rest);
        let [namespace_monotonic_ns, namespace_boottime_ns] = moved;
        WakeupFacts {
            timer_slack_ns,
            governors,
            idle_driver,
            idle_states,
            hypervisor,
            stolen_share,
            namespace_monotonic_ns,
            namespace_boottime_ns,
        }
    })
}

#[test]
fn the_file_is_written_as_it_was_read() {
    let result: HostClockResult = read(CLOCK);
    assert_eq!(written(&result), CLOCK);
    assert_eq!(result.schema, HOST_CLOCK_SCHEMA);
}

#[test]
fn fields_are_read_by_their_names() {
    let result: HostClockResult = read(CLOCK);
    assert_eq!((result.tick.hz, result.tick.known_by), (Some(250), Some(HzSource::Config)));
    assert_eq!(result.rtcs[0].system_ahead_ns, Some(-312_000_000));
    assert!(!result.kernel.unwrap().synchronised && result.waking.idle_states[1].disabled);
}

#[test]
fn fields_that_are_not_known_are_ignored() {
    let mut file: Value = read(CLOCK);
    with_unknown_fields(&mut file);
    assert_eq!(serde_json::from_value::<HostClockResult>(file).unwrap(), read(CLOCK));
}

proptest! {
    #[test]
    fn any_result_is_the_same_after_it_was_written_and_read(result in result()) {
        let text = serde_json::to_string(&result).unwrap();
        prop_assert_eq!(serde_json::from_str::<HostClockResult>(&text).unwrap(), result);
    }

    /// A field that is new is put into the golden file, and stays from then on.
    #[test]
    fn every_name_that_can_be_written_is_in_the_file(result in result()) {
        prop_assert_eq!(new_names(&result, CLOCK), Vec::<String>::new());
    }
}
