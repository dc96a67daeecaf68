//! Configuration of the core.

use pagewalk_units::{Cycle, Error};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Direction predictor of conditional branches.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum PredictorSpec {
    /// TAGE (Seznec and Michaud, JILP 2006): a bimodal table and tagged tables
    /// with geometrically growing history.
    Tage {
        /// log2 of the entries of each tagged table.
        log_entries: u32,
        /// Tagged tables, 2 to 8.
        tables: u32,
        /// Branches of history that the first tagged table sees.
        min_history: u32,
        /// Branches of history that the last tagged table sees.
        max_history: u32,
    },
    /// Two-bit counters by address (Smith, ISCA 1981).
    Bimodal {
        /// log2 of the number of counters.
        log_entries: u32,
    },
    /// Never wrong, targets included.
    Perfect {},
}

/// Four tagged tables of 2048 entries and 8 to 256 branches of history: with a
/// bimodal table of 8192 counters about 20 KB of storage, the size of a
/// present-day core's.
fn default_predictor() -> PredictorSpec {
    PredictorSpec::Tage {
        log_entries: 11,
        tables: 4,
        min_history: 8,
        max_history: 256,
    }
}

/// AMD Zen 3: 32 entries (Software Optimization Guide for Family 19h, 2.8.1.3).
fn default_return_stack() -> u32 {
    32
}

/// AMD Zen 3: 1536 entries in the indirect target array (Software Optimization
/// Guide for Family 19h, 2.8.1.4), rounded down to a power of two.
fn default_indirect_entries() -> u32 {
    1024
}

/// Ordering of a `lock`ed read-modify-write with respect to other instructions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Atomics {
    /// It begins when all older instructions have retired; younger ones begin when it is done.
    #[default]
    Drain,
    /// It begins when its inputs are ready and older stores are written; younger loads and stores
    /// wait until it has read. Older loads and everything else overlap.
    Fence,
}

/// Loads on the wrong paths of mispredicted branches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WrongPathSpec {
    /// Continue on the wrong path until a mispredicted branch is resolved, as far as code and
    /// addresses are known from earlier executions; false: the core waits. Default: true for a
    /// program whose memory can be read, while more than 5 of 1,000 instructions are mispredicted.
    pub enabled: Option<bool>,
    /// Blocks of code to remember, from a branch to the next; a power of two. Default 32768.
    pub blocks: u32,
    /// Addresses of loads to remember, by the origins of their inputs; a power of two. Each takes
    /// 12 bytes of the host's memory per core. Default 8388608.
    pub addresses: u32,
}

impl Default for WrongPathSpec {
    fn default() -> Self {
        WrongPathSpec {
            enabled: None,
            blocks: 1 << 15,
            addresses: 1 << 23,
        }
    }
}

/// Operations of a class that start in a cycle, 1 to 7. Default: any number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PortsSpec {
    /// Integer operations other than multiplications.
    pub alu: Option<u32>,
    /// Integer multiplications.
    pub multiply: Option<u32>,
    /// Vector and floating-point operations, multiplications included.
    pub vector: Option<u32>,
    /// Vector and floating-point multiplications.
    pub vector_multiply: Option<u32>,
    /// Loads.
    pub load: Option<u32>,
    /// Stores. As many are written to the first-level cache in a cycle, if all go to one line.
    pub store: Option<u32>,
    /// Loads and stores together.
    pub memory: Option<u32>,
    /// Branches of every kind.
    pub branch: Option<u32>,
    /// Taken branches.
    pub taken_branch: Option<u32>,
}

impl PortsSpec {
    /// True if nothing is limited.
    pub fn is_unlimited(&self) -> bool {
        *self == PortsSpec::default()
    }
}

/// The out-of-order core.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CoreSpec {
    /// Instructions dispatched and retired a cycle.
    pub width: u32,
    /// Reorder-buffer entries, one for each instruction.
    pub rob: u32,
    /// Loads between dispatch and retirement.
    pub load_queue: u32,
    /// Stores between dispatch and the write to the first-level cache.
    pub store_queue: u32,
    /// Cycles from a branch's resolution to the first instruction of the right path.
    pub mispredict_penalty: Cycle,
    /// Cycles from a store's data to the result of a load that it forwards them to. Default: those of
    /// a hit in the first level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forwarding_latency: Option<Cycle>,
    /// Operations that start in a cycle, by class. Default: any number.
    #[serde(default, skip_serializing_if = "PortsSpec::is_unlimited")]
    pub ports: PortsSpec,
    /// Direction of conditional branches.
    #[serde(default = "default_predictor")]
    pub predictor: PredictorSpec,
    /// Entries of the return stack.
    #[serde(default = "default_return_stack")]
    pub return_stack: u32,
    /// Entries of the table of indirect targets by history; a power of two.
    #[serde(default = "default_indirect_entries")]
    pub indirect_entries: u32,
    /// Ordering of atomic read-modify-writes with respect to other instructions; fences and `cpuid`
    /// always drain the window.
    #[serde(default)]
    pub atomics: Atomics,
    /// Simulation of the wrong paths of mispredicted branches.
    #[serde(default)]
    pub wrong_path: WrongPathSpec,
}

impl CoreSpec {
    /// Checks the values.
    ///
    /// # Errors
    /// One sentence that names the impossible key.
    pub fn check(&self) -> Result<(), Error> {
        let within = |key: &str, value: u32, low: u32, high: u32| {
            if (low..=high).contains(&value) {
                Ok(())
            } else {
                Err(Error::key(
                    format!("core.{key}"),
                    format!("is {value}; expected {low} to {high}"),
                ))
            }
        };
        within("width", self.width, 1, 32)?;
        within("rob", self.rob, 2, 1 << 14)?;
        within("load_queue", self.load_queue, 1, 1 << 14)?;
        within("store_queue", self.store_queue, 1, 1 << 14)?;
        within("return_stack", self.return_stack, 1, 1 << 12)?;
        within("indirect_entries", self.indirect_entries, 1, 1 << 20)?;
        let WrongPathSpec {
            blocks, addresses, ..
        } = self.wrong_path;
        within("wrong_path.blocks", blocks, 1, 1 << 20)?;
        within("wrong_path.addresses", addresses, 4, 1 << 28)?;
        for (key, value) in [
            ("indirect_entries", self.indirect_entries),
            ("wrong_path.blocks", blocks),
            ("wrong_path.addresses", addresses),
        ] {
            if !value.is_power_of_two() {
                return Err(Error::key(
                    format!("core.{key}"),
                    format!("is {value}; expected a power of two"),
                ));
            }
        }
        let p = &self.ports;
        for (key, value) in [
            ("alu", p.alu),
            ("multiply", p.multiply),
            ("vector", p.vector),
            ("vector_multiply", p.vector_multiply),
            ("load", p.load),
            ("store", p.store),
            ("memory", p.memory),
            ("branch", p.branch),
            ("taken_branch", p.taken_branch),
        ] {
            if let Some(value) = value {
                within(&format!("ports.{key}"), value, 1, 7)?;
            }
        }
        if let Some(latency) = self.forwarding_latency.filter(|&l| l > 1000) {
            return Err(Error::key(
                "core.forwarding_latency",
                format!("is {latency}; expected at most 1000 cycles"),
            ));
        }
        if self.mispredict_penalty > 1000 {
            return Err(Error::key(
                "core.mispredict_penalty",
                format!(
                    "is {}; expected at most 1000 cycles",
                    self.mispredict_penalty
                ),
            ));
        }
        match self.predictor {
            PredictorSpec::Tage {
                log_entries,
                tables,
                min_history,
                max_history,
            } => {
                within("predictor.tage.log_entries", log_entries, 4, 11)?;
                within("predictor.tage.tables", tables, 2, 8)?;
                within("predictor.tage.min_history", min_history, 1, 1000)?;
                within(
                    "predictor.tage.max_history",
                    max_history,
                    min_history + tables,
                    1000,
                )
            }
            PredictorSpec::Bimodal { log_entries } => {
                within("predictor.bimodal.log_entries", log_entries, 4, 24)
            }
            PredictorSpec::Perfect {} => Ok(()),
        }
    }
}
