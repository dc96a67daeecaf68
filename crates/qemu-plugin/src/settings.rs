//! The engine's settings on QEMU's command line.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use pagewalk_ring::Geometry;

/// The engine's settings from the command line, kept for programs that this one executes.
pub struct Settings {
    /// Abstract Unix socket that the engine listens on.
    pub socket: String,
    /// The emulator's path.
    pub qemu: OsString,
    /// This library's path.
    pub plugin: OsString,
    /// Sizes of a segment.
    pub geometry: Geometry,
    /// Also count instructions with QEMU's own counter.
    pub count: bool,
    /// CPU model for QEMU; empty: QEMU's default.
    pub cpu: String,
    /// Date of the program's start, in seconds since 1970, if its clocks show the simulated time.
    pub clock: Option<u64>,
    /// Other threads meet the marks of the region of interest.
    pub roi: bool,
    /// Base that QEMU adds to the guest's addresses; empty: QEMU's default.
    pub base: String,
}

impl Settings {
    /// Parses QEMU's arguments for the plugin, each `key=value`.
    ///
    /// # Errors
    /// An unknown or invalid argument, or no socket.
    pub fn parse<'a>(arguments: impl Iterator<Item = &'a OsStr>) -> Result<Settings, String> {
        let mut s = Settings {
            socket: String::new(),
            qemu: OsString::new(),
            plugin: OsString::new(),
            geometry: Geometry {
                slots: 1024,
                records: 1 << 17,
                code_bytes: 1 << 30,
            },
            count: false,
            roi: false,
            cpu: String::new(),
            base: String::new(),
            clock: None,
        };
        for argument in arguments {
            let bytes = argument.as_bytes();
            let at = bytes.iter().position(|&b| b == b'=');
            let at = at.ok_or_else(|| format!("{argument:?} is not key=value"))?;
            let (key, value) = (&bytes[..at], OsStr::from_bytes(&bytes[at + 1..]));
            let text = || {
                let text = value.to_str().map(str::to_owned);
                text.ok_or_else(|| format!("{argument:?} is not UTF-8"))
            };
            let number = || {
                let number = text()?.parse::<usize>();
                number.map_err(|_| format!("{argument:?}: expected a number"))
            };
            match key {
                b"socket" => s.socket = text()?,
                b"qemu" => s.qemu = value.into(),
                b"plugin" => s.plugin = value.into(),
                b"records" => s.geometry.records = number()?,
                b"count" => s.count = value == "on",
                b"roi" => s.roi = value == "on",
                b"cpu" => s.cpu = text()?,
                b"clock" if value.is_empty() => {}
                b"clock" => s.clock = Some(number()? as u64),
                b"base" => s.base = text()?,
                _ => return Err(format!("unknown key in {argument:?}")),
            }
        }
        if s.socket.is_empty() {
            return Err("socket=NAME is missing: start the program with `pagewalk run`".into());
        }
        if s.geometry.bytes().is_none() {
            return Err("records: expected a power of two from 16".into());
        }
        Ok(s)
    }

    /// The settings as one value of QEMU's `-plugin` option, in which commas are doubled.
    pub fn as_option(&self) -> OsString {
        let records = self.geometry.records.to_string();
        let [count, roi] = [self.count, self.roi].map(|set| if set { "on" } else { "off" });
        let clock = self.clock.map_or(String::new(), |date| date.to_string());
        let mut option = Vec::new();
        for (key, value) in [
            ("", self.plugin.as_bytes()),
            (",socket=", self.socket.as_bytes()),
            (",qemu=", self.qemu.as_bytes()),
            (",plugin=", self.plugin.as_bytes()),
            (",records=", records.as_bytes()),
            (",count=", count.as_bytes()),
            (",roi=", roi.as_bytes()),
            (",cpu=", self.cpu.as_bytes()),
            (",base=", self.base.as_bytes()),
            (",clock=", clock.as_bytes()),
        ] {
            option.extend(key.as_bytes());
            let parts: Vec<&[u8]> = value.split(|&b| b == b',').collect();
            option.extend(parts.join(&b",,"[..]));
        }
        OsString::from_vec(option)
    }
}
