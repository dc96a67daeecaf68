//! The plugin that QEMU's user-mode emulator loads. It decodes only
//! what QEMU does not report. It sends each translation block's bytes once.
//! Then it sends the blocks' numbers and the addresses of their memory accesses as they execute.
//!
//! It links QEMU's plugin interface and is therefore GPL-2.0-or-later. Nothing
//! else of Pagewalk links it; they meet in the shared memory of `ring`.

mod alignment;
mod answers;
mod api;
mod calls;
mod clock;
mod count;
#[cfg(test)]
mod documented;
mod exec;
mod files;
mod guest;
mod hugetlb;
mod kernel_files;
mod late;
mod maps;
mod marks;
mod numa;
mod prefetch;
mod process;
mod ranges;
mod repeat;
mod settings;
mod touches;
mod translate;
mod unreported;

use std::ffi::{CStr, OsStr, c_char, c_int, c_uint};
use std::os::unix::ffi::OsStrExt;

use settings::Settings;

/// QEMU calls this once, before it loads the guest.
///
/// # Safety
/// Only QEMU calls it: `argv` has `argc` strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: api::Id,
    info: *const api::Info,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    let arguments = (0..argc as usize).map(|i| {
        // SAFETY: by this function's contract.
        OsStr::from_bytes(unsafe { CStr::from_ptr(*argv.add(i)) }.to_bytes())
    });
    let settings = match Settings::parse(arguments) {
        Ok(settings) => settings,
        Err(why) => {
            eprintln!("pagewalk: the plugin was given wrong arguments: {why}");
            return -1;
        }
    };
    // SAFETY: by this function's contract.
    if let Err(why) = unsafe { translate::prepare(info, settings.count) } {
        eprintln!("pagewalk: {why}: use qemu-user 7.2 to 10.x");
        return -1;
    }
    if let Err(error) = process::start(settings) {
        eprintln!("pagewalk: the plugin does not reach the engine: {error}");
        return -1;
    }
    if !alignment::install() {
        eprintln!(
            "pagewalk: large mappings are not aligned to 2 MB as Linux aligns them, and there are no pools of huge pages, because this QEMU imports no mmap"
        );
    }
    if let Err(why) = clock::install() {
        eprintln!("pagewalk: the program's clocks cannot show the simulated time: {why}");
        return -1;
    }
    maps::note_own();
    // SAFETY: QEMU's functions, with callbacks of the required types.
    unsafe {
        api::qemu_plugin_register_vcpu_init_cb(id, vcpu_starts);
        api::qemu_plugin_register_vcpu_tb_trans_cb(id, translate::block);
        api::qemu_plugin_register_vcpu_syscall_cb(id, calls::enter);
        api::qemu_plugin_register_vcpu_syscall_ret_cb(id, calls::leave);
    }
    0
}

/// Called on the creator's thread, before the new one runs.
unsafe extern "C" fn vcpu_starts(_id: api::Id, vcpu: c_uint) {
    process::new_thread(vcpu as usize);
    if api::is_second() {
        unreported::find_registers();
    }
}
