//! Arbitrary text as the plan of a campaign and as the policy of an agent: parsing never panics,
//! and an error is one line. A valid plan is assigned to agents, or the error names the missing
//! capabilities, and an agent can read each order; a policy is unchanged after it was written and
//! parsed again.
#![no_main]

use horolog_campaign::FileContentError;
use horolog_campaign::placement::{AgentCandidate, assign_roles};
use horolog_campaign::plan::Plan;
use horolog_campaign::policy::AgentPolicy;
use horolog_campaign::role::RoleKind;
use libfuzzer_sys::fuzz_target;

fn assert_one_line(error: &FileContentError, text: &str) {
    let lines = 1 + text.matches('\n').count();
    assert!(error.line.is_none_or(|line| (1..=lines).contains(&line)), "{error:?}");
    assert!(!error.reason.contains('\n'), "{error:?}");
}

fn agent(number: u8) -> Option<AgentCandidate> {
    Some(AgentCandidate {
        name: format!("n{number}").parse().ok()?,
        labels: [("site".to_owned(), "a".to_owned())].into(),
        addresses: vec![[192, 0, 2, number].into()],
        kinds: RoleKind::ALL.to_vec(),
    })
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = str::from_utf8(bytes) else { return };
    match AgentPolicy::parse(text) {
        Ok(policy) => assert_eq!(AgentPolicy::parse(&policy.to_toml()), Ok(policy)),
        Err(error) => assert_one_line(&error, text),
    }
    let plan = match Plan::parse(text, &[]) {
        Ok(plan) => plan,
        Err(error) => return assert_one_line(&error, text),
    };
    let agents: Vec<_> = (1..=4).filter_map(agent).collect();
    let (Ok(placement), Ok(campaign)) = (assign_roles(&plan, &agents), "fuzz".parse()) else {
        return;
    };
    assert_eq!(placement.jobs.len() as u64, plan.instances());
    for order in placement.orders(&campaign, "0", &plan) {
        // An order may exceed the limits of size or duration of an agent, but the agent can read
        // it.
        let _ = order.check(&order.agent, "0");
        assert!(order.jobs.iter().all(|job| job.kind.parse_options(&job.options).is_ok()));
    }
});
