//! Scenarios of `horolog host nic` on lab hosts, with a veth of known queues and settings.

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig, LabHost};
use horolog_sys::ethtool::set_gro;
use horolog_sys::namespace::die_with_parent;
use serde_json::Value;

use crate::process::{TIMEOUT, binary, run_to_end};
use crate::scenario::Scenario;
use crate::{ROOT, host_nics, scenarios};

pub(crate) fn all() -> Vec<Scenario> {
    Vec::from(
        scenarios!(ROOT, host_nics: a_veth_is_reported_as_configured, loopback_has_few_settings),
    )
}

fn nic_report(host: &LabHost, interface: &str) -> Result<Value> {
    let mut command = host.command(binary()?);
    command.args(["host", "nic", interface, "--json", "-"]);
    let output = run_to_end(die_with_parent(&mut command), TIMEOUT)?;
    ensure!(output.status.success(), "{output:?}");
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn names(result: &Value, list: &str, name: &str) -> Result<Vec<String>> {
    let entries = result[list].as_array().context("no list")?;
    Ok(entries.iter().filter_map(|one| one[name].as_str().map(str::to_owned)).collect())
}

fn a_veth_is_reported_as_configured() -> Result<()> {
    let lab = Lab::new(&LabConfig { queues: 3, ..LabConfig::default() })?;
    let server = lab.server();
    let interface = server.first_interface().name.clone();
    server.run(|| set_gro(&interface, true))??;
    let result = nic_report(server, &interface)?;
    ensure!(result["schema"] == "horolog.host-nic/2", "{result}");
    ensure!(result["driver"] == "veth" && result["kind"] == "veth", "{result}");
    ensure!(result["queues"]["rx"] == 3 && result["queues"]["tx"] == 3, "{}", result["queues"]);
    let gro = |result: &Value| {
        let offloads = result["offloads"].as_array().cloned().unwrap_or_default();
        offloads.iter().find(|one| one["name"] == "rx-gro").map(|one| one["on"].clone())
    };
    ensure!(gro(&result) == Some(Value::Bool(true)), "{}", result["offloads"]);
    let timestamps = &result["timestamps"];
    ensure!(
        timestamps["software_tx"] == true && timestamps["hardware_tx"] == false,
        "{timestamps}"
    );
    ensure!(timestamps.get("clock").is_none(), "{timestamps}");
    let unavailable = names(&result, "unavailable", "item")?;
    ensure!(unavailable.iter().any(|what| what == "interrupts"), "{unavailable:?}");
    server.run(|| set_gro(&interface, false))??;
    ensure!(gro(&nic_report(server, &interface)?) == Some(Value::Bool(false)));
    // Outside the lab, this interface does not exist.
    let mut outside = std::process::Command::new(binary()?);
    let output = run_to_end(outside.args(["host", "nic", &interface]), TIMEOUT)?;
    ensure!(output.status.code() == Some(3), "{output:?}");
    Ok(())
}

fn loopback_has_few_settings() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let result = nic_report(lab.server(), "lo")?;
    ensure!(result["advice"].as_array().is_some_and(Vec::is_empty), "{result}");
    let unavailable = names(&result, "unavailable", "item")?;
    for what in ["rings", "coalescing", "interrupts"] {
        ensure!(unavailable.iter().any(|one| one == what), "{unavailable:?}");
    }
    let found = names(&result, "findings", "code")?;
    ensure!(found.iter().any(|code| code == "timestamps-missing"), "{found:?}");
    Ok(())
}
