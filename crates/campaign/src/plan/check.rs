//! Whether a plan's roles fit one another: each that is named is there, no role waits for itself,
//! and references are to instances that there are.

use std::collections::BTreeSet;

use super::{INSTANCES_MAX, Instances, Plan, Reference, Role, Which};
use crate::fault::Fault;
use crate::id::RoleName;

pub(super) fn check(plan: &Plan) -> Result<(), Fault> {
    let mut seen = BTreeSet::new();
    if let Some(role) = plan.roles.iter().find(|role| !seen.insert(&role.name)) {
        return Err(fault(role, format!("there is a role '{}' already", role.name)));
    }
    plan.roles.iter().try_for_each(|role| instances(plan, role))?;
    plan.roles.iter().try_for_each(|role| references(plan, role))?;
    if plan.roles.iter().all(|role| role.kind.is_service()) {
        let reason = "no role measures anything: all are services, or there are none";
        return Err(Fault::new(None, reason));
    }
    let all = plan.instances();
    if all > INSTANCES_MAX {
        let reason = format!("its roles have {all} instances; {INSTANCES_MAX} are possible");
        return Err(Fault::new(None, reason));
    }
    Ok(())
}

fn fault(role: &Role, reason: String) -> Fault {
    Fault::new(Some(role.line), reason)
}

fn known<'a>(plan: &'a Plan, role: &Role, name: &RoleName) -> Result<&'a Role, Fault> {
    plan.role(name).ok_or_else(|| fault(role, unknown(plan, name)))
}

fn unknown(plan: &Plan, name: &RoleName) -> String {
    let names: Vec<_> = plan.roles.iter().map(|role| role.name.as_str()).collect();
    format!("there is no role or parameter '{name}'; the roles are {}", names.join(", "))
}

fn instances(plan: &Plan, role: &Role) -> Result<(), Fault> {
    let name = &role.name;
    match &role.instances {
        Instances::Count { apart_from, .. } => apart_from.iter().try_for_each(|other| {
            if other == name {
                let reason = format!("instances of '{name}' are on different agents anyway");
                return Err(fault(role, reason));
            }
            match known(plan, role, other)?.instances {
                Instances::Count { .. } => Ok(()),
                _ => {
                    Err(fault(role, format!("'{other}' has the agents of another role; name that")))
                }
            }
        }),
        Instances::ForEach(other) | Instances::ForEachPair(other) => {
            no_loop(plan, role)?;
            if matches!(known(plan, role, other)?.instances, Instances::ForEachPair(_)) {
                let reason = format!("'{other}' is for each pair; name a role that is not");
                return Err(fault(role, reason));
            }
            if plan.count(name) == 0 {
                return Err(fault(
                    role,
                    format!("pairs of '{other}' need two instances of it, and there is one"),
                ));
            }
            Ok(())
        }
    }
}

/// Follows what each role is for, which ends at one that has a count.
fn no_loop(plan: &Plan, role: &Role) -> Result<(), Fault> {
    let mut at = role;
    let mut seen = BTreeSet::from([&role.name]);
    while let Instances::ForEach(other) | Instances::ForEachPair(other) = &at.instances {
        if !seen.insert(other) {
            let reason =
                format!("'{}' is for each of '{other}', which comes back to it", role.name);
            return Err(fault(role, reason));
        }
        at = known(plan, role, other)?;
    }
    Ok(())
}

fn references(plan: &Plan, role: &Role) -> Result<(), Fault> {
    for option in &role.options {
        for reference in option.values.iter().flat_map(super::Template::references) {
            let wrong = |reason: String| Fault::new(Some(option.line), reason);
            reference_is(plan, role, reference).map_err(wrong)?;
        }
    }
    Ok(())
}

fn reference_is(plan: &Plan, role: &Role, reference: &Reference) -> Result<(), String> {
    match reference {
        Reference::Own | Reference::Instance => Ok(()),
        Reference::From | Reference::To => match role.instances {
            Instances::ForEachPair(_) => Ok(()),
            _ => {
                Err("{from} and {to} are the ends of a pair; this role has no for-each-pair".into())
            }
        },
        Reference::Role(name, which) => {
            if plan.role(name).is_none() {
                return Err(unknown(plan, name));
            }
            let count = plan.count(name);
            match which {
                Which::One(number) if u64::from(number.get()) > count => Err(format!(
                    "'{{{name}.{number}}}' is not there: '{name}' has {count} instances"
                )),
                _ => Ok(()),
            }
        }
    }
}
