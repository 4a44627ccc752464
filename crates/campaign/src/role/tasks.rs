//! Task file of `horolog cycle run` as permitted in a plan: built-in periodic work only. Keys that
//! start a program are refused under any name; the meaning of the rest is checked by the command.

use toml::{Table, Value};

/// Permitted keys of a task. A command, a program and the states that it marks are not among them.
const OF_A_TASK: &[&str] = &[
    "name", "period", "deadline", "offset", "policy", "priority", "core", "worst", "critical",
    "compute", "units", "message", "to", "barrier", "step", "polling",
];
const OF_A_STEP: &[&str] = &["compute", "units", "message", "to", "barrier"];
const OF_POLLING: &[&str] = &["rate", "compute", "units", "budget"];

/// Checks a task file, as far as necessary here.
///
/// # Errors
///
/// The key that is not permitted.
pub(super) fn check(text: &str) -> Result<(), String> {
    let form = || "write the text of a task file, with a [[task]], or none".to_owned();
    let file: Table = text.parse().map_err(|_| form())?;
    known(&file, &["task"])?;
    let tasks = file.get("task").and_then(Value::as_array).filter(|tasks| !tasks.is_empty());
    tasks.ok_or_else(form)?.iter().try_for_each(|task| {
        let task = task.as_table().ok_or_else(form)?;
        known(task, OF_A_TASK)?;
        let steps = task.get("step").map(|steps| steps.as_array().ok_or_else(form)).transpose()?;
        for step in steps.into_iter().flatten() {
            known(step.as_table().ok_or_else(form)?, OF_A_STEP)?;
        }
        match task.get("polling") {
            Some(polling) => known(polling.as_table().ok_or_else(form)?, OF_POLLING),
            None => Ok(()),
        }
    })
}

fn known(table: &Table, names: &[&str]) -> Result<(), String> {
    match table.keys().find(|name| !names.contains(&name.as_str())) {
        Some(name) => Err(format!("'{name}' is not supported in plans; omit it")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_is_built_in_may_be_in_a_plan_and_programs_may_not() {
        let task = "[[task]]\nname = \"a\"\nperiod = \"10ms\"\n";
        for more in [
            "compute = \"1ms\"\nbarrier = true\n",
            "[[task.step]]\nunits = 3\n[[task.step]]\nmessage = 64\n[[task]]\nname = \"b\"\n",
            "[task.polling]\nrate = 200\ncompute = \"1ms\"\nbudget = 4\n",
        ] {
            check(&format!("{task}{more}")).unwrap();
        }
        for (more, named) in [
            ("command = [\"/bin/sh\"]\n", "'command' is not supported in plans"),
            ("program = [\"/bin/sh\"]\n", "'program' is not"),
            ("[[task.step]]\ncommand = [\"/bin/sh\"]\n", "'command' is not"),
            ("[task.polling]\nprogram = [\"/bin/sh\"]\n", "'program' is not"),
            ("[other]\n", "'other' is not"),
            ("step = 1\n", "write the text of a task file"),
        ] {
            let why = check(&format!("{task}{more}")).unwrap_err();
            assert!(why.contains(named), "{more}: {why}");
        }
        for text in ["", "task = []", "task = 1", "task = [1]", "[[task]"] {
            assert!(check(text).unwrap_err().contains("write the text of a task file"), "{text}");
        }
    }
}
