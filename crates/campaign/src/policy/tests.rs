//! What the default policy allows, what a file changes of it, and what is refused.

use proptest::prelude::*;

use super::*;
use crate::order::PROTOCOL;

fn job(kind: RoleKind, pairs: &[(&str, &str)]) -> Job {
    let mut options: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in pairs {
        options.entry((*name).to_owned()).or_default().push((*value).to_owned());
    }
    let id = format!("{kind}.1").parse().unwrap();
    Job { id, kind, options, service: kind.is_service() }
}

fn order(jobs: Vec<Job>) -> Order {
    Order {
        protocol: PROTOCOL,
        version: "0.1.0".into(),
        campaign: "c".parse().unwrap(),
        agent: "a".parse().unwrap(),
        plan_hash: String::new(),
        deadline_ns: 60_000_000_000,
        jobs,
    }
}

fn load(target: &str, rate: &str) -> Job {
    job(RoleKind::LoadNtp, &[("target", target), ("rate", rate)])
}

fn refusal(policy: &AgentPolicy, job: Job) -> String {
    policy.check(&order(vec![job])).unwrap_err().to_string()
}

#[test]
fn without_a_file_private_networks_may_be_measured_modestly() {
    let policy = AgentPolicy::default();
    for target in ["10.1.2.3", "127.0.0.1:123", "[fd00::1]:123", "::1", "192.0.2.1"] {
        policy.check(&order(vec![load(target, "1k-100k")])).unwrap();
    }
    for target in ["8.8.8.8", "2a00::1", "::ffff:8.8.8.8", "0.0.0.0"] {
        let why = refusal(&policy, load(target, "1k"));
        assert!(why.starts_with("job load-ntp.1: target: "), "{why}");
        assert!(why.ends_with("is outside the policy's 'targets'"), "{why}");
    }
    let why = refusal(&policy, load("10.0.0.1", "1k-200k"));
    assert_eq!(
        why,
        "job load-ntp.1: rate: 200000 per second exceed the policy's max-rate = 100000"
    );
    let why = refusal(&policy, job(RoleKind::PathTcp, &[("target", "10.0.0.1")]));
    assert!(why.contains("the policy does not allow path-tcp"), "{why}");
    for kind in [RoleKind::CycleLead, RoleKind::CycleJoin] {
        assert!(
            !policy.kinds().contains(&kind),
            "{kind} takes processors with a real-time priority"
        );
    }
    let why = refusal(&policy, job(RoleKind::Serve, &[("listen", "8.8.8.8:123")]));
    assert!(why.contains("listen: 8.8.8.8 is outside the policy's 'listen'"), "{why}");
}

/// A block of text in YAML: the lines behind its key that are further in.
fn block<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    let lines = text.lines().skip_while(|line| line.trim() != format!("{key}: |"));
    let within = |line: &str| line.len() - line.trim_start().len();
    let mut lines = lines.peekable();
    let outer = lines.next().map_or(0, within);
    let is_inside = |line: &&str| line.trim().is_empty() || within(line) > outer;
    lines.take_while(is_inside).map(str::trim_start).collect()
}

#[test]
fn the_policy_that_is_installed_with_kubernetes_is_one() {
    let manifest = include_str!("../../../../packaging/kubernetes/horolog-agents.yaml");
    let text = block(manifest, "policy.toml").join("\n");
    assert!(text.contains(POLICY_SCHEMA), "{text}");
    assert_eq!(AgentPolicy::parse(&text), Ok(AgentPolicy::default()));
    // What a container is told to read is what the manifest has.
    assert!(manifest.contains("--policy=/etc/horolog/policy/policy.toml"));
    assert!(manifest.contains("mountPath: /etc/horolog/policy\n"));
}

#[test]
fn times_jobs_and_forms_are_judged() {
    let policy = AgentPolicy::default();
    let mut long = order(vec![load("10.0.0.1", "1k")]);
    long.deadline_ns = 601_000_000_000;
    let why = policy.check(&long).unwrap_err().to_string();
    assert!(why.contains("the plan's duration-max: 601 s exceed"), "{why}");
    let timed = [("target", "10.0.0.1"), ("rate", "1"), ("time", "700")];
    assert!(refusal(&policy, job(RoleKind::LoadNtp, &timed)).contains("time: 700 s"));
    let mut many = order(vec![load("10.0.0.1", "1k"); 65]);
    assert!(policy.check(&many).unwrap_err().to_string().contains("65 jobs exceed"));
    many.jobs.pop();
    policy.check(&many).unwrap();
    let mut odd = load("10.0.0.1", "1k");
    odd.service = true;
    assert!(refusal(&policy, odd).contains("is a service"));
    assert!(refusal(&policy, load("time.example", "1k")).contains("names are not supported"));
}

#[test]
fn a_relay_is_judged_by_its_copies() {
    let relay = |rate, children: &[&'static str]| {
        let mut pairs = vec![("listen", "10.0.0.1:5000"), ("source", "10.0.0.0/8"), ("rate", rate)];
        pairs.extend(children.iter().map(|child| ("child", *child)));
        job(RoleKind::RelayRun, &pairs)
    };
    let policy = AgentPolicy::default();
    policy.check(&order(vec![relay("50k", &["10.0.0.2:1", "10.0.0.3:1"])])).unwrap();
    let why = refusal(&policy, relay("60k", &["10.0.0.2:1", "10.0.0.3:1"]));
    assert!(why.contains("rate: 120000 per second"), "{why}");
    let mut open = relay("1k", &[]);
    open.options.insert("source".into(), vec!["0.0.0.0/0".into()]);
    let why = refusal(&policy, open);
    assert!(why.contains("source: 0.0.0.0/0 is outside the policy's 'targets'"), "{why}");
}

#[test]
fn rates_are_limited_whichever_option_sets_them_and_in_total() {
    let policy = AgentPolicy::parse("schema = \"horolog.policy/1\"\nmax-rate = \"1k\"\n").unwrap();
    let query = |interval| {
        let pairs = [("target", "10.0.0.1"), ("target", "10.0.0.2"), ("interval", interval)];
        job(RoleKind::Query, &pairs)
    };
    policy.check(&order(vec![query("2ms")])).unwrap();
    let why = refusal(&policy, query("1ms"));
    assert!(why.contains("interval: 2000 per second exceed"), "{why}");
    let path = |option, value| job(RoleKind::PathUdp, &[("target", "10.0.0.1"), (option, value)]);
    policy.check(&order(vec![path("rate", "1k")])).unwrap();
    assert!(refusal(&policy, path("rate", "2k")).contains("rate: 2000 per"), "too fast");
    assert!(refusal(&policy, path("flows", "1")).contains("flows without a rate: 100000 per"));
    AgentPolicy::default().check(&order(vec![path("flows", "1")])).unwrap();
    assert!(refusal(&AgentPolicy::default(), path("flows", "2")).contains("200000 per"));
    let several = order(vec![load("10.0.0.1", "600"), load("10.0.0.2", "500")]);
    let why = policy.check(&several).unwrap_err().to_string();
    assert!(why.contains("the total of all jobs of this agent exceeds"), "{why}");
    policy.check(&order(vec![load("10.0.0.1", "600"), load("10.0.0.2", "400")])).unwrap();
}

#[test]
fn networks_of_ipv4_in_the_clothes_of_ipv6_keep_their_length() {
    let policy = AgentPolicy::default();
    let relay = |source| {
        let pairs = [("listen", "10.0.0.1:5000"), ("source", source), ("rate", "1")];
        job(RoleKind::RelayRun, &pairs)
    };
    for source in ["::ffff:10.0.0.0/104", "::ffff:10.1.2.3/128", "10.0.0.0/8"] {
        policy.check(&order(vec![relay(source)])).unwrap();
    }
    for source in ["::ffff:10.0.0.0/100", "::ffff:10.0.0.0/96", "::ffff:10.0.0.0/64"] {
        let why = refusal(&policy, relay(source));
        assert!(why.contains("is outside the policy's 'targets'"), "{source}: {why}");
    }
    let mapped = "schema = \"horolog.policy/1\"\ntargets = [\"::ffff:8.8.0.0/112\"]\n";
    let mapped = AgentPolicy::parse(mapped).unwrap();
    mapped.check(&order(vec![load("8.8.8.8", "1k")])).unwrap();
    assert!(refusal(&mapped, load("8.9.8.8", "1k")).contains("'targets'"));
}

#[test]
fn a_file_widens_and_narrows() {
    let policy = AgentPolicy::parse(
        "schema = \"horolog.policy/1\"\nkinds = [\"load-ntp\", \"path-tcp\"]\nmax-rate = \"1k\"\n\
         targets = [\"8.8.8.8\"]\n[kind.load-ntp]\nmax-rate = \"1M\"\n",
    )
    .unwrap();
    assert_eq!(policy.kinds(), [RoleKind::LoadNtp, RoleKind::PathTcp]);
    policy.check(&order(vec![load("8.8.8.8", "1M")])).unwrap();
    policy.check(&order(vec![job(RoleKind::PathTcp, &[("target", "8.8.8.8")])])).unwrap();
    assert!(refusal(&policy, load("10.0.0.1", "1k")).contains("'targets'"));
    assert!(AgentPolicy::allow_all().check(&order(vec![load("8.8.8.8", "20M")])).is_ok());
}

#[test]
fn faults_have_lines() {
    let head = "schema = \"horolog.policy/1\"\n";
    for (text, line, named) in [
        ("schema = \"horolog.policy/2\"\n", Some(1), "this version reads"),
        ("", Some(1), "schema"),
        (&format!("{head}max-rates = 1\n"), Some(2), "unknown field `max-rates`"),
        (&format!("{head}max-rate = \"fast\"\n"), Some(2), "max-rate: write a positive number"),
        (&format!("{head}\nmax-time = \"0\"\n"), Some(3), "max-time: "),
        (&format!("{head}targets = [\n\"10/8\",\n]\n"), Some(3), "is not a network"),
        (&format!("{head}kinds = [\"shell\"]\n"), Some(2), "unknown kind of role 'shell'"),
        (&format!("{head}kinds = []\n[kind.serve]\n"), Some(3), "add \"serve\" to the kinds"),
        (&format!("{head}max-jobs = 0\n"), Some(2), "at least 1"),
    ] {
        let fault = AgentPolicy::parse(text).unwrap_err();
        assert_eq!(fault.line, line, "{text}: {fault}");
        assert!(fault.reason.contains(named), "{text}: {fault}");
    }
}

#[test]
fn the_effective_policy_round_trips_as_a_file() {
    let own = AgentPolicy::parse(
        "schema = \"horolog.policy/1\"\nmax-time = \"1.5s\"\n[kind.query]\nmax-time = \"2h\"\n",
    );
    for policy in [AgentPolicy::default(), own.unwrap()] {
        assert_eq!(AgentPolicy::parse(&policy.to_toml()), Ok(policy));
    }
}

#[test]
fn the_guide_has_the_default_policy() {
    let guide = include_str!("../../../../docs/campaign.md");
    let policy = AgentPolicy::default().to_toml().trim_end().replace('\n', "\n    ");
    assert!(guide.contains(&policy), "{policy}");
}

proptest! {
    /// What one policy allows, a wider one allows as well.
    #[test]
    fn more_targets_allow_more(address: [u8; 4], length in 0_u8..=32) {
        let target = std::net::Ipv4Addr::from(address).to_string();
        let of = |length| {
            let policy = format!(
                "schema = \"horolog.policy/1\"\ntargets = [\"10.1.2.3/{length}\"]\n"
            );
            AgentPolicy::parse(&policy).unwrap().check(&order(vec![load(&target, "1k")])).is_ok()
        };
        prop_assert!(!of(length) || of(length.saturating_sub(1)), "{target}/{length}");
    }

    #[test]
    fn any_text_is_read_or_refused(
        text in "(?s).{0,80}|(schema = \"horolog.policy/1\"\n|kinds|targets|=|\\[|\\]|\"|10.0.0.0/8|\n){0,20}"
    ) {
        if let Err(fault) = AgentPolicy::parse(&text) {
            let lines = 1 + text.matches('\n').count();
            prop_assert!(fault.line.is_none_or(|line| (1..=lines).contains(&line)), "{fault}");
        }
    }
}
