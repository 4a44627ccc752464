//! List of the scenarios, by queue, with their needs. [`crate::runner`] runs the queues.

use crate::process::Engine;
use crate::scenario::{Need, Queue, Scenario, scenario};
use crate::{
    ROOT, ROOT_AND_IPV6, addresses, af_xdp_queues, bench, bench_relay, calibration,
    campaign_brokers, campaign_control, campaign_errors, campaign_install, campaign_local,
    campaign_nats, capture, ci_outputs, client_fairness, clocks, completions,
    compliant_clients_ptp, container, counters, cycle_predict, cycle_program, cycle_run,
    cycle_test, cycle_views, demo, denied_syscalls, differential, differential_limits,
    differential_ptp, documented, faulty_master, faulty_server, gnss_receivers, gnss_sentences,
    group_requests, host_all, host_clocks, host_nics, host_scheduler, interop_clients, isolation,
    jumbo_frames, lab, launch_after, launch_at, launch_systemd, live_views, load_accounting,
    load_engines, load_interruption, load_limits, load_mix, load_modes, load_offsets,
    load_profiles, load_ptp, load_usage_errors, malformed_flood, monitoring, ntpperf, nts_ke_load,
    odd_requests, package, packet_devices, pages, path_stall, path_tcp, path_udp, process,
    ptp_verifier_differential, query, raw_frames, relay, relay_capacity, relay_differential,
    relay_lifecycle, relay_tree, relay_xdp, requests, runs, runs_compare, scenarios, search,
    server_configuration, server_crash, server_flood, server_interleaved, server_ke, server_leap,
    server_limits, server_metrics, server_nts, server_ptp, server_ptp_hostile, server_ptp_masters,
    server_ptp_messages, server_ptp_peers, server_reload, server_sandbox, server_sources, soak,
    static_binary, store_corruption, tshark_capture, unsynchronised_server, usage_errors,
    verifier_differential, web, xdp_load_profiles, xdp_relay, xdp_relay_changes, xdp_relay_load,
    xdp_relay_sockets,
};

/// Returns all scenarios.
pub(crate) fn all() -> Vec<Scenario> {
    let queues = [
        (Queue::Exclusive, exclusive_scenarios()),
        (Queue::Measuring, measuring_scenarios()),
        (Queue::Shared, shared_scenarios()),
    ];
    let all = queues.into_iter().flat_map(|(queue, scenarios)| {
        // A scenario of a module may need more than the others.
        scenarios.into_iter().map(move |one| {
            let queue = one.queue.max(queue);
            one.in_queue(queue)
        })
    });
    all.collect()
}

/// Scenarios of [`Queue::Exclusive`].
fn exclusive_scenarios() -> Vec<Scenario> {
    let mut all = load_scenarios();
    all.extend(host_scheduler::all());
    all.extend(server_flood::all());
    all.extend(server_limits::all());
    all.extend(Engine::ALL.map(|engine| {
        let name = format!("malformed_flood::malformed_requests_get_no_reply::{}", engine.name());
        scenario(name, ROOT_AND_IPV6, move || {
            malformed_flood::malformed_requests_get_no_reply(engine)
        })
    }));
    all.extend(
        scenarios!(ROOT, xdp_relay_load: full_batches_from_every_core_reach_remaining_children),
    );
    all.extend(bench::all());
    all.extend(soak::all());
    all
}

/// Scenarios of [`Queue::Measuring`], the longest first.
fn measuring_scenarios() -> Vec<Scenario> {
    let mut all = load_ptp::all();
    all.extend(compliant_clients_ptp::all());
    all.extend(load_offsets::all());
    all.extend(capture::all());
    all.extend(tshark_capture::all());
    all.extend(cycle_test::all());
    all.extend(path_udp::all());
    all.extend(path_tcp::all());
    all.extend(host_all::all());
    all.extend(bench_relay::all());
    all.extend(demo_scenarios());
    all.extend(load_modes::all());
    all.extend(load_mix::all());
    all.extend(path_stall::all());
    all.extend(host_clocks::all());
    all.extend(query::all());
    all.extend(client_fairness::all());
    all.extend(ntpperf::all());
    all.extend(load_profiles::all());
    all.extend(xdp_load_profiles::all());
    all.extend(load_interruption::all());
    all.extend(nts_ke_load::all());
    all.extend(load_engine_scenarios());
    all.extend(generator_scenarios());
    all
}

/// Scenarios of [`Queue::Shared`].
fn shared_scenarios() -> Vec<Scenario> {
    let mut all = Vec::from(scenarios!(&[], process: a_long_output_is_read));
    all.extend(scenarios!(ROOT, isolation: leftovers_are_named, isolation_hides_the_host));
    // The longest first, so that none runs alone at the end; those that mostly wait beside those
    // that compute.
    all.extend(pages::all());
    all.extend(container::all());
    all.extend(package::all());
    all.extend(gnss_receivers::all());
    all.extend(documented::all());
    all.extend(monitoring::all());
    all.extend(calibration::all());
    all.extend(server_sources::all());
    all.extend(server_ptp_peers::all());
    all.extend(faulty_master::all());
    all.extend(faulty_server::all());
    all.extend(lab_scenarios());
    all.extend(load_limits::all());
    all.extend(cycle_run::all());
    all.extend(packet_device_scenarios());
    all.extend(differential_scenarios());
    for engine in Engine::ALL {
        all.extend(engine_scenarios(engine));
    }
    all.extend(server_scenarios());
    all.extend(load_usage_error_scenarios());
    all.extend(server_interleaved::all());
    all.extend(group_requests::all());
    all.extend(jumbo_frames::all());
    all.extend(odd_requests::all());
    all.extend(server_ke::all());
    all.extend(host_nics::all());
    all.extend(server_configuration::all());
    all.extend(server_reload::all());
    all.extend(addresses::all());
    all.extend(server_metrics::all());
    all.extend(web::all());
    all.extend(live_views::all());
    all.extend(server_sandbox::all());
    all.extend(denied_syscalls::all());
    all.extend(counters::all());
    all.extend(relay::all());
    all.extend(relay_capacity::all());
    all.extend(relay_xdp::all());
    all.extend(relay_lifecycle::all());
    all.extend(relay_tree::all());
    all.extend(scenarios!(ROOT, relay_differential: both_engines_decide_alike));
    all.extend(ci_outputs::all());
    all.extend(cycle_predict::all());
    all.extend(campaign_local::all());
    all.extend(server_nts::all());
    all.extend(server_leap::all());
    all.extend(gnss_sentences::all());
    all.extend(clocks::all());
    all.extend(server_ptp::all());
    all.extend(server_ptp_masters::all());
    all.extend(server_ptp_hostile::all());
    all.extend(server_ptp_messages::all());
    all.extend(unsynchronised_server::all());
    all.extend(campaign_brokers::all());
    all.extend(campaign_control::all());
    all.extend(campaign_nats::all());
    all.extend(campaign_install::all());
    all.extend(campaign_errors::all());
    all.extend(completions::all());
    all.extend(static_binary::all());
    all.extend(cycle_program::all());
    all.extend(cycle_views::all());
    all.extend(launch_after::all());
    all.extend(launch_at::all());
    all.extend(launch_systemd::all());
    all.extend(runs::all());
    all.extend(runs_compare::all());
    all.extend(store_corruption::all());
    all
}

fn lab_scenarios() -> Vec<Scenario> {
    let mut all = Vec::from(scenarios!(ROOT, lab:
        links_can_be_changed,
        a_lab_without_ipv6_has_none,
        host_settings_stay_unchanged,
        a_named_lab_is_created_and_removed,
        a_duplicate_lab_name_is_refused,
        a_partial_lab_is_removed,
        an_interrupted_up_leaves_no_partial_lab,
        a_killed_holder_leaves_nothing,
    ));
    all.extend(scenarios!(ROOT_AND_IPV6, lab:
        datagrams_cross,
        a_star_reaches_every_server,
        links_have_the_requested_settings,
        ethtool_works_on_veth,
        routes_are_found,
        neighbours_are_resolved,
    ));
    all
}

fn packet_device_scenarios() -> Vec<Scenario> {
    Vec::from(scenarios!(ROOT_AND_IPV6, packet_devices:
        a_filter_passes_only_matching_datagrams,
        a_filter_skips_options_and_refuses_fragments,
        a_listener_answers_raw_frames,
        frames_dropped_for_lack_of_room_are_counted,
        an_overlong_frame_is_refused_alone,
        an_interface_that_goes_down_is_reported,
        an_unknown_interface_is_refused_by_name,
    ))
}

fn differential_scenarios() -> Vec<Scenario> {
    Vec::from(scenarios!(ROOT, differential:
        program_and_model_agree,
        without_a_clock_page_everything_passes,
        an_address_can_be_removed,
    ))
    .into_iter()
    .chain(scenarios!(ROOT, differential_ptp:
        program_and_function_agree,
        program_and_function_agree_on_monitor,
        a_port_answers_only_what_is_configured,
        without_a_clock_no_request_is_answered,
    ))
    .chain(scenarios!(ROOT, differential_limits:
        limits_agree,
        clients_keep_their_entries_through_changes,
        plain_new_clients_leave_room_for_long_requests,
        passed_interleaved_requests_are_not_answered,
    ))
    .chain(scenarios!(ROOT, af_xdp_queues:
        frames_of_unserved_queues_are_passed,
        unsent_frames_are_not_sent_later,
        oversized_datagrams_are_reported_as_truncated,
    ))
    .chain(scenarios!(ROOT_AND_IPV6, xdp_relay:
        copies_are_correct,
        other_packets_are_passed_unchanged,
        refusals_are_counted_by_reason,
    ))
    .chain(scenarios!(ROOT_AND_IPV6, xdp_relay_sockets: sockets_are_served))
    .chain(scenarios!(ROOT_AND_IPV6, xdp_relay_changes:
        remaining_children_receive_every_packet_once,
        an_unreachable_child_costs_the_others_no_packet,
        copies_dropped_by_a_full_ring_are_counted,
        this_host_may_send_by_a_dedicated_interface,
        an_invalid_change_changes_nothing,
        a_killed_relay_leaves_nothing,
    ))
    .collect()
}

type EngineScenario = (&'static str, &'static [Need], fn(Engine) -> anyhow::Result<()>);

/// Scenarios of either engine of the server with clients of other implementations.
const CLIENT_SCENARIOS: [EngineScenario; 4] = [
    ("interop_clients::chronyd_reads_the_time_over_ipv4", CHRONYD, |engine| {
        interop_clients::chronyd_reads_the_time(engine, false)
    }),
    ("interop_clients::chronyd_reads_the_time_over_ipv6", CHRONYD_AND_IPV6, |engine| {
        interop_clients::chronyd_reads_the_time(engine, true)
    }),
    (
        "interop_clients::an_sntp_client_reads_the_time",
        NTPDIG,
        interop_clients::an_sntp_client_reads_the_time,
    ),
    (
        "interop_clients::an_unsynchronised_server_is_refused",
        UNSYNCHRONISED,
        interop_clients::an_unsynchronised_server_is_refused,
    ),
];

/// Returns the scenarios of one engine of the server.
fn engine_scenarios(engine: Engine) -> Vec<Scenario> {
    let list: [EngineScenario; 5] = [
        ("interop_clients::a_test_drift_is_served", ROOT, interop_clients::a_test_drift_is_served),
        (
            "interop_clients::replies_carry_the_configured_values",
            ROOT_AND_IPV6,
            interop_clients::replies_carry_the_configured_values,
        ),
        (
            "server_crash::a_killed_server_sends_nothing_and_leaves_nothing",
            ROOT,
            server_crash::a_killed_server_sends_nothing_and_leaves_nothing,
        ),
        (
            "server_crash::a_stopped_server_answers_until_its_clock_page_expires",
            ROOT,
            server_crash::a_stopped_server_answers_until_its_clock_page_expires,
        ),
        (
            "server_crash::a_terminated_server_ends",
            ROOT_AND_IPV6,
            server_crash::a_terminated_server_ends,
        ),
    ];
    let options =
        scenario(format!("raw_frames::ipv4_options_are_answered::{}", engine.name()), ROOT, {
            move || raw_frames::ipv4_options_are_answered(engine)
        });
    of_engine(engine, list).chain(of_engine(engine, CLIENT_SCENARIOS)).chain([options]).collect()
}

fn of_engine(
    engine: Engine,
    list: impl IntoIterator<Item = EngineScenario>,
) -> impl Iterator<Item = Scenario> {
    list.into_iter().map(move |(name, needs, run)| {
        scenario(format!("{name}::{}", engine.name()), needs, move || run(engine))
    })
}

const CHRONYD: &[Need] = &[Need::Root, Need::Peer("chronyd")];
const CHRONYD_AND_IPV6: &[Need] = &[Need::Root, Need::Ipv6, Need::Peer("chronyd")];
const NTPDIG: &[Need] = &[Need::Root, Need::Ipv6, Need::Peer("ntpdig")];
const UNSYNCHRONISED: &[Need] = &[Need::Root, Need::UnsynchronisedClock, Need::Peer("chronyd")];

fn server_scenarios() -> Vec<Scenario> {
    let mut all = Vec::from(scenarios!(ROOT_AND_IPV6, raw_frames:
        only_a_priority_tag_is_returned,
        fragments_are_answered_by_the_sockets,
    ));
    all.extend(scenarios!(ROOT, server_crash: usr1_prints_the_counters));
    all.extend(scenarios!(ROOT, usage_errors:
        impossible_requests_are_refused,
        malformed_command_lines_are_refused,
        occupied_ports_and_interfaces_are_named,
        missing_privileges_are_named,
    ));
    all.extend(scenarios!(&[], usage_errors: status_without_a_server_is_refused));
    all
}

fn load_engine_scenarios() -> Vec<Scenario> {
    Vec::from(scenarios!(ROOT_AND_IPV6, load_engines:
        packet_engine_counts_every_reply,
        udp_engine_counts_every_reply,
        random_sources_are_recognised,
        unanswered_requests_are_lost_at_the_server,
        losses_at_a_full_socket_are_located,
        a_missing_return_route_is_named,
        the_engine_falls_back_if_xdp_frames_do_not_arrive,
        a_closed_port_is_named,
        unreachable_targets_are_refused,
    ))
}

fn generator_scenarios() -> Vec<Scenario> {
    let mut all = Vec::from(scenarios!(ROOT, verifier_differential:
        program_and_model_agree,
        a_reply_before_the_trial_counts_for_an_earlier_one,
        replies_are_counted_in_the_intervals_of_their_requests,
        packets_that_are_no_reply_pass,
    ));
    all.extend(scenarios!(ROOT, ptp_verifier_differential:
        program_and_model_agree,
        responses_of_an_earlier_trial_are_late,
        packets_that_are_no_response_pass,
    ));
    all.extend(scenarios!(ROOT, requests:
        requests_match_their_plan,
        requests_leave_at_their_intended_send_times,
        exponential_intervals_match_the_table,
        response_time_buckets_match_horolog_stats,
        lateness_buckets_match_horolog_stats,
    ));
    all
}

const CHRONYD_AND_CHRONYC: &[Need] =
    &[Need::Root, Need::Ipv6, Need::Peer("chronyd"), Need::Peer("chronyc")];

fn load_scenarios() -> Vec<Scenario> {
    let mut all =
        Vec::from(scenarios!(CHRONYD_AND_CHRONYC, load_accounting: generator_agrees_with_chronyd));
    for engine in Engine::ALL {
        let name = |of: &str| format!("load_accounting::{of}::{}", engine.name());
        all.push(scenario(name("generator_agrees_with_the_server"), ROOT_AND_IPV6, move || {
            load_accounting::generator_agrees_with_the_server(engine)
        }));
        all.push(scenario(name("losses_of_a_stopped_server_are_located"), ROOT, move || {
            load_accounting::losses_of_a_stopped_server_are_located(engine)
        }));
    }
    all.extend(scenarios!(ROOT, load_accounting:
        a_full_receive_ring_is_found,
        a_flood_is_accounted_for,
        an_unsent_schedule_is_a_finding,
    ));
    all.extend(scenarios!(ROOT, search: a_known_capacity_is_found));
    all
}

fn load_usage_error_scenarios() -> Vec<Scenario> {
    let mut all = Vec::from(scenarios!(ROOT_AND_IPV6, load_usage_errors:
        impossible_requests_are_refused,
        malformed_command_lines_are_refused,
    ));
    all.extend(scenarios!(ROOT, load_usage_errors:
        a_public_target_is_sent_nothing,
        an_unreachable_neighbour_is_named,
        missing_privileges_are_named,
        a_file_that_cannot_be_written_is_named,
        a_closed_output_loses_no_result,
        an_interrupted_run_keeps_its_result,
        a_second_interrupt_ends_at_once,
    ));
    all
}

fn demo_scenarios() -> Vec<Scenario> {
    let every_server = scenarios!(ROOT, demo: root_measures_every_server);
    let mut all = Vec::from(every_server.map(|scenario| scenario.in_queue(Queue::Exclusive)));
    all.extend(scenarios!(ROOT, demo:
        an_ordinary_user_measures_socket_engines,
        a_killed_demonstration_leaves_nothing,
    ));
    all
}
