# SPDX-License-Identifier: Apache-2.0
"""Names that are macros in headers of other people: those not written in capitals.

A program may include a device's or an operating system's header before a model's. What such a
header defines as a macro is replaced wherever it stands, also as a member of our structs. Macros
in capitals need no list: no name of ours is written in capitals alone (c_names.py).
"""

from __future__ import annotations

_ARDUINO = """
    abs absf absl bit bitClear bitRead bitSet bitToggle bitWrite boolean byte
    clockCyclesPerMicrosecond clockCyclesToMicroseconds constrain cli degrees digitalPinToBitMask
    digitalPinToInterrupt digitalPinToPort digitalPinToTimer analogInPinToBit portInputRegister
    portModeRegister portOutputRegister highByte interrupts lowByte map max
    microsecondsToClockCycles min noInterrupts pgm_read_byte pgm_read_dword pgm_read_float
    pgm_read_ptr pgm_read_word radians round sei serialEvent sq word yield
"""
_C_LIBRARIES = """
    alloca assert atomic_init atomic_load atomic_store basename bcmp bcopy bzero cbrt ceil
    clearerr complex copysign daylight direct environ errno exp exp2 fabs false fd_set feof ferror
    fileno finite floor fma fmax fmin fmod fpclassify fract getc getchar hypot imaginary index
    isalnum isalpha isascii isblank iscntrl isdigit isgraph islower isprint ispunct isspace
    isupper isxdigit ldexp log log10 log1p log2 logb lrint lround major makedev memccpy mempcpy
    minor nearbyint noreturn offsetof optional_argument no_argument required_argument physadr pow
    putc putchar quad remainder rindex rint sa_handler sa_sigaction sat setjmp siglongjmp sigmask
    signbit signgam sigpause sigsetjmp sin sinh snprintf sprintf sqrt st_atime st_ctime st_mtime
    stat64 static_assert stderr stdin stdout strcpy strdupa strerror_r strtodf tan tanh tgamma
    thread_local timezone toascii tolower toupper true trunc tzname unctrl va_arg va_copy va_end
    va_list va_start vsprintf accum cos cosh acos asin atan atan2 cproj creal cimag conj carg erf
    erfc
"""
_SYSTEMS = """
    cdecl check fortran hyper i386 i486 i586 interface mips nil pascal require s_addr s_host s_imp
    s_impno s_lh s_net sin_zero small stdcall sun unix vax verify wait_event emit foreach signals
    slots forever arm arm64 thumb min_t max_t clamp container_of likely unlikely swap typecheck
    typeof near far huge interrupt linux
"""
FOREIGN_MACROS = frozenset(f"{_ARDUINO} {_C_LIBRARIES} {_SYSTEMS}".split())
