//! libFuzzer's way to the targets. `GRANULE_FUZZ` names the target. Where `GRANULE_FUZZ_UNPACK` names a folder, its kept inputs and
//! seeds are put there, one file each; where `GRANULE_FUZZ_PACK` does, the files there become the kept inputs. Then nothing is
//! run.
#![no_main]

use granule_fuzz::{Target, archive};
use std::path::Path;
use std::sync::LazyLock;
use std::{env, io, process};

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = env::var("GRANULE_FUZZ").unwrap_or_default();
    Target::named(&name).unwrap_or_else(|| panic!("GRANULE_FUZZ names no target: {name:?}"))
});

libfuzzer_sys::fuzz_target!(
    init: {
        if let Some(folder) = env::var_os("GRANULE_FUZZ_UNPACK") {
            done(archive::unpack_into(&TARGET, Path::new(&folder)));
        }
        if let Some(folder) = env::var_os("GRANULE_FUZZ_PACK") {
            done(archive::pack_from(&TARGET, Path::new(&folder)));
        }
    },
    |input: &[u8]| (TARGET.run)(input)
);

fn done(how: io::Result<usize>) -> ! {
    match &how {
        Ok(inputs) => println!("{}: {inputs} inputs", TARGET.name),
        Err(error) => eprintln!("{}: {error}", TARGET.name),
    }
    process::exit(i32::from(how.is_err()))
}
