//! Which scenarios there are, in which lane, and what each needs. What runs beside what is decided
//! by [`crate::lane`].

use libtest_mimic::Trial;

use crate::lane::Lanes;
use crate::process::Engine;
use crate::scenario::{Need, scenario};
use crate::{
    ROOT, ROOT_AND_IPV6, again, bench, bench_relay, bodies, bodies_limits, bodies_ptp, calibration,
    campaign_brokers, campaign_control, campaign_install, campaign_local, campaign_nats,
    campaign_refusals, capture, ci_use, clients, clocks, completions, container, counters, courses,
    cycle_predict, cycle_program, cycle_run, cycle_test, cycle_watch, death, demo, devices,
    dissection, documented, establishments, host_all, host_clocks, host_nics, host_scheduler,
    kernel_courses, lab, launch_after, launch_at, launch_systemd, leftovers, limiters, live_views,
    load_ends, load_engines, load_mix, load_modes, load_offsets, load_ptp, load_refusals, loads,
    monitoring, noise, ntpperf, package, pages, path_stall, path_tcp, path_udp, process,
    ptp_verdicts, qualification, query, queues, raw, receivers, refusals, relay, relay_below,
    relay_bodies, relay_full, relay_life, relay_tree, replication, replication_changes,
    replication_load, replication_sockets, requests, runs, runs_compare, runs_damage, scenarios,
    search, server_configuration, server_flood, server_interleaved, server_ke, server_leap,
    server_limits, server_metrics, server_nts, server_ptp, server_ptp_hostile, server_ptp_masters,
    server_ptp_peers, server_reload, server_sandbox, server_sources, soak, static_binary, verdicts,
    web, well_behaved_ptp, wrong_master, wrong_server,
};

/// All of them, by the lane that they run in.
pub(crate) fn lanes() -> Lanes {
    Lanes { measuring: measuring(), waiting: [peers(), operation()] }
}

fn measuring() -> Vec<Trial> {
    let mut all = Vec::from(scenarios!(&[], process: a_long_answer_is_read));
    all.extend(scenarios!(&[], again: few_failures_are_tried_again));
    all.extend(of_private_hosts());
    all.extend(of_packet_devices());
    all.extend(of_the_bodies());
    for engine in Engine::ALL {
        all.extend(of_an_engine(engine));
    }
    all.extend(of_the_server());
    all.extend(of_the_load_engines());
    all.extend(of_the_generators_bodies());
    all.extend(of_loads());
    all.extend(of_load_refusals());
    all.extend(server_interleaved::all());
    all.extend(server_limits::all());
    all.extend(server_ke::all());
    all.extend(cycle_run::all());
    all.extend(host_scheduler::all());
    all.extend(host_all::all());
    all.extend(path_tcp::all());
    all.extend(path_stall::all());
    all.extend(host_clocks::all());
    all.extend(host_nics::all());
    all.extend(server_configuration::all());
    all.extend(server_ptp::under_load());
    all.extend(server_reload::all());
    all.extend(server_flood::all());
    all.extend(server_metrics::all());
    all.extend(web::all());
    all.extend(live_views::all());
    all.extend(server_sandbox::all());
    all.extend(counters::all());
    all.extend(capture::all());
    all.extend(dissection::all());
    all.extend(establishments::all());
    all.extend(wrong_server::all());
    all.extend(load_ends::all());
    all.extend(load_mix::all());
    all.extend(well_behaved_ptp::all());
    all.extend(load_modes::all());
    all.extend(qualification::all());
    all.extend(ntpperf::all());
    all.extend(load_ptp::all());
    all.extend(load_offsets::all());
    all.extend(query::all());
    all.extend(path_udp::all());
    all.extend(relay::all());
    all.extend(relay_below::all());
    all.extend(relay_life::all());
    all.extend(relay_full::all());
    all.extend(scenarios!(ROOT, relay_bodies: both_bodies_decide_alike));
    all.extend(relay_tree::all());
    all.extend(ci_use::all());
    all.extend(pages::all());
    all.extend(cycle_predict::all());
    all.extend(cycle_test::all());
    all.extend(campaign_local::all());
    all.extend(courses::all());
    all.extend(kernel_courses::all());
    all.extend(limiters::all());
    all.extend(bench::all());
    all.extend(bench_relay::all());
    all.extend(soak::all());
    all.extend(of_the_demonstration());
    all
}

fn peers() -> Vec<Trial> {
    let mut all = Vec::new();
    for engine in Engine::ALL {
        all.extend(named(engine, WAITING_OF_AN_ENGINE));
    }
    all.extend(server_nts::all());
    all.extend(server_leap::all());
    all.extend(relay_life::waiting());
    all.extend(server_sources::all());
    all.extend(receivers::all());
    all.extend(calibration::all());
    all.extend(clocks::all());
    all.extend(server_ptp::all());
    all.extend(server_ptp_peers::all());
    all.extend(server_ptp_masters::all());
    all.extend(server_ptp_hostile::all());
    all.extend(wrong_server::waiting());
    // At a low rate, with patience.
    all.extend(wrong_master::all());
    all
}

fn operation() -> Vec<Trial> {
    let mut all = Vec::from(scenarios!(&[], leftovers: an_orphan_is_found));
    all.extend(campaign_brokers::all());
    all.extend(campaign_control::all());
    all.extend(campaign_install::all());
    all.extend(campaign_nats::all());
    all.extend(campaign_refusals::all());
    all.extend(completions::all());
    all.extend(container::all());
    all.extend(static_binary::all());
    all.extend(cycle_program::all());
    all.extend(cycle_watch::all());
    all.extend(launch_after::all());
    all.extend(launch_at::all());
    all.extend(launch_systemd::all());
    all.extend(monitoring::all());
    all.extend(package::all());
    all.extend(runs::all());
    all.extend(runs_compare::all());
    all.extend(runs_damage::all());
    all.extend(documented::all());
    all
}

fn of_private_hosts() -> Vec<Trial> {
    let mut all = Vec::from(scenarios!(ROOT, lab:
        links_can_be_changed,
        a_lab_without_ipv6_has_none,
        nothing_outside_changes,
        a_named_lab_comes_and_goes,
        up_twice_is_refused,
        half_a_lab_is_removed,
        an_interrupted_up_leaves_no_half,
        a_killed_holder_leaves_nothing,
    ));
    all.extend(scenarios!(ROOT_AND_IPV6, lab:
        datagrams_cross,
        a_star_reaches_every_server,
        links_are_as_asked,
        ethtool_speaks_to_veth,
        routes_are_found,
        neighbours_are_resolved,
    ));
    all
}

fn of_packet_devices() -> Vec<Trial> {
    Vec::from(scenarios!(ROOT_AND_IPV6, devices:
        a_filter_keeps_what_it_names,
        a_filter_steps_over_options_and_refuses_fragments,
        a_listener_answers_raw_frames,
        frames_that_find_no_room_are_counted,
        a_frame_too_long_is_refused_alone,
        an_interface_that_goes_down_is_reported,
        an_unknown_interface_is_refused_by_name,
    ))
}

fn of_the_bodies() -> Vec<Trial> {
    Vec::from(scenarios!(ROOT, bodies:
        program_and_model_agree,
        without_a_page_everything_passes,
        an_address_can_be_taken_back,
    ))
    .into_iter()
    .chain(scenarios!(ROOT, bodies_ptp:
        program_and_function_agree,
        program_and_function_agree_on_monitor,
        a_port_answers_what_it_is_told,
        without_a_clock_nobody_is_answered,
    ))
    .chain(scenarios!(ROOT, bodies_limits:
        limits_agree,
        clients_keep_their_places_through_changes,
        plain_newcomers_leave_room_for_long_ones,
        interleaved_requests_that_go_up_are_not_answered,
    ))
    .chain(scenarios!(ROOT, queues:
        a_queue_beyond_those_served_goes_up,
        what_could_not_leave_does_not_leave_later,
        a_datagram_that_does_not_fit_is_told,
    ))
    .chain(scenarios!(ROOT_AND_IPV6, replication:
        copies_are_what_they_should_be,
        what_is_not_plain_goes_up_as_it_was,
        refusals_are_told_apart,
    ))
    .chain(scenarios!(ROOT_AND_IPV6, replication_sockets: sockets_are_served))
    .chain(scenarios!(ROOT_AND_IPV6, replication_changes:
        who_stays_gets_every_packet_once,
        who_cannot_be_reached_costs_nobody_a_packet,
        what_a_ring_has_no_room_for_is_counted,
        this_host_may_send_by_an_interface_of_its_own,
        what_cannot_be_set_changes_nothing,
        a_killed_relay_leaves_nothing,
    ))
    .chain(scenarios!(ROOT, replication_load: full_batches_from_every_core_reach_who_stays))
    .collect()
}

type OfAnEngine = (&'static str, &'static [Need], fn(Engine) -> anyhow::Result<()>);

/// What holds for either engine of the server, and waits for clients of others.
const WAITING_OF_AN_ENGINE: [OfAnEngine; 4] = [
    ("clients::chronyd_reads_the_time_over_ipv4", CHRONYD, |engine| {
        clients::chronyd_reads_the_time(engine, false)
    }),
    ("clients::chronyd_reads_the_time_over_ipv6", CHRONYD_AND_IPV6, |engine| {
        clients::chronyd_reads_the_time(engine, true)
    }),
    ("clients::an_sntp_client_reads_the_time", NTPDIG, clients::an_sntp_client_reads_the_time),
    (
        "clients::an_unsynchronised_server_is_refused",
        UNSYNCHRONISED,
        clients::an_unsynchronised_server_is_refused,
    ),
];

/// What else holds for either engine.
fn of_an_engine(engine: Engine) -> Vec<Trial> {
    let list: [OfAnEngine; 6] = [
        ("clients::a_test_drift_is_served", ROOT, clients::a_test_drift_is_served),
        (
            "clients::replies_say_what_they_were_told_to",
            ROOT_AND_IPV6,
            clients::replies_say_what_they_were_told_to,
        ),
        (
            "death::a_killed_server_is_silent_and_leaves_nothing",
            ROOT,
            death::a_killed_server_is_silent_and_leaves_nothing,
        ),
        ("death::a_stopped_server_falls_silent", ROOT, death::a_stopped_server_falls_silent),
        ("death::a_server_told_to_end_ends", ROOT_AND_IPV6, death::a_server_told_to_end_ends),
        ("noise::noise_gets_no_reply", ROOT_AND_IPV6, noise::noise_gets_no_reply),
    ];
    let options = scenario(format!("raw::ipv4_options_are_answered::{}", engine.name()), ROOT, {
        move || raw::ipv4_options_are_answered(engine)
    });
    named(engine, list).chain([options]).collect()
}

fn named(
    engine: Engine,
    list: impl IntoIterator<Item = OfAnEngine>,
) -> impl Iterator<Item = Trial> {
    list.into_iter().map(move |(name, needs, run)| {
        scenario(format!("{name}::{}", engine.name()), needs, move || run(engine))
    })
}

const CHRONYD: &[Need] = &[Need::Root, Need::Peer("chronyd")];
const CHRONYD_AND_IPV6: &[Need] = &[Need::Root, Need::Ipv6, Need::Peer("chronyd")];
const NTPDIG: &[Need] = &[Need::Root, Need::Ipv6, Need::Peer("ntpdig")];
const UNSYNCHRONISED: &[Need] = &[Need::Root, Need::UnsynchronisedClock, Need::Peer("chronyd")];

fn of_the_server() -> Vec<Trial> {
    let mut all = Vec::from(scenarios!(ROOT_AND_IPV6, raw:
        a_vlan_tag_comes_back,
        fragments_are_answered_by_the_sockets,
    ));
    all.extend(scenarios!(ROOT, death: usr1_prints_the_counters));
    all.extend(scenarios!(ROOT, refusals:
        what_cannot_be_is_refused,
        what_is_malformed_is_refused,
        what_is_taken_is_named,
        an_ordinary_user_is_told_what_is_missing,
    ));
    all.extend(scenarios!(&[], refusals: status_without_a_server_is_refused));
    all
}

fn of_the_load_engines() -> Vec<Trial> {
    Vec::from(scenarios!(ROOT_AND_IPV6, load_engines:
        packet_engine_counts_every_reply,
        udp_engine_counts_every_reply,
        random_sources_are_recognised,
        unanswered_requests_are_lost_at_the_server,
        a_full_socket_is_found,
        a_missing_return_route_is_named,
        a_closed_port_is_named,
        unreachable_targets_are_refused,
    ))
}

fn of_the_generators_bodies() -> Vec<Trial> {
    let mut all = Vec::from(scenarios!(ROOT, verdicts:
        program_and_model_agree,
        a_reply_before_the_trial_is_of_an_earlier_one,
        replies_stand_in_the_books_of_their_requests,
        what_is_no_reply_passes,
    ));
    all.extend(scenarios!(ROOT, ptp_verdicts:
        program_and_model_agree,
        what_an_earlier_trial_is_owed_is_late,
        what_is_no_answer_passes,
    ));
    all.extend(scenarios!(ROOT, requests:
        requests_are_as_planned,
        requests_keep_their_instants,
        exponential_intervals_are_of_the_table,
        buckets_are_the_same,
        lateness_is_counted_in_the_same_buckets,
    ));
    all
}

const CHRONYD_AND_CHRONYC: &[Need] =
    &[Need::Root, Need::Ipv6, Need::Peer("chronyd"), Need::Peer("chronyc")];

fn of_loads() -> Vec<Trial> {
    let mut all = Vec::from(scenarios!(CHRONYD_AND_CHRONYC, loads: chronyd_counts_the_same));
    for body in Engine::ALL {
        let name = |of: &str| format!("loads::{of}::{}", body.name());
        all.push(scenario(name("the_server_counts_the_same"), ROOT_AND_IPV6, move || {
            loads::the_server_counts_the_same(body)
        }));
        all.push(scenario(name("a_stopped_server_s_losses_are_found"), ROOT, move || {
            loads::a_stopped_server_s_losses_are_found(body)
        }));
    }
    all.extend(scenarios!(ROOT, loads:
        a_full_own_ring_is_found,
        a_flood_is_accounted_for,
        what_was_planned_was_sent_or_is_doubted,
    ));
    all.extend(scenarios!(ROOT, search: a_known_capacity_is_found));
    all
}

fn of_load_refusals() -> Vec<Trial> {
    let mut all = Vec::from(scenarios!(ROOT_AND_IPV6, load_refusals:
        what_cannot_be_is_refused,
        what_is_malformed_is_refused,
    ));
    all.extend(scenarios!(ROOT, load_refusals:
        a_public_target_is_sent_nothing,
        a_silent_neighbour_is_named,
        an_ordinary_user_is_told_what_is_missing,
        a_file_that_cannot_be_written_is_named,
        a_reader_that_goes_away_costs_no_result,
        an_interrupted_run_keeps_its_result,
        a_second_interrupt_ends_at_once,
    ));
    all
}

fn of_the_demonstration() -> Vec<Trial> {
    Vec::from(scenarios!(ROOT, demo:
        root_sees_every_server,
        an_ordinary_user_sees_sockets,
        a_killed_demonstration_leaves_nothing,
    ))
}
