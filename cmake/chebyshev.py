"""Writes src/aten/bessel_tables.h: Chebyshev coefficients of what src/aten/bessel.c evaluates, to the last bit of a double. Needs mpmath, which PyTorch brings.

    python cmake/chebyshev.py > src/aten/bessel_tables.h

Each table stands for a smooth function on one interval: a special function with its growth, its poles and its oscillation divided out (M. Abramowitz, I. Stegun,
Handbook of Mathematical Functions, chapters 7, 9 and 26; W. J. Cody for the idea of the pieces)."""

from mpmath import besseli, besselj, besselk, bessely, cos, erfc, erfinv, exp, findroot, log, mp, mpf, ncdf, pi, sin, sqrt

mp.dps = 50


def phase(order, wanted):
    """P (wanted = 0) or x Q (wanted = 1) of the asymptotic form sqrt(2 / (pi x)) (P cos(chi) - Q sin(chi)), as functions of (8 / x)^2."""

    def value(v):
        x = 8 / sqrt(v)
        chi = x - (2 * order + 1) * pi / 4
        j, y, scale = besselj(order, x), bessely(order, x), sqrt(pi * x / 2)
        return scale * (j * cos(chi) + y * sin(chi)) if wanted == 0 else x * scale * (y * cos(chi) - j * sin(chi))

    return value


def quantile_tail(u):
    """How far the normal quantile of exp(-x^2 / 2) lies below x - log(x) / x, x = 1 / u."""
    x = 1 / u
    start = x - log(x) / x
    root = findroot(lambda z: log(ncdf(-z)) + x * x / 2, start - mpf("0.9") / x)
    return start - root


def at_square(function):
    return lambda s: function(sqrt(s))


# name: (function, low, high, what it is)
TABLES = {
    "i0_small": (lambda x: exp(-x) * besseli(0, x), 0, 8, "exp(-x) I0(x) of x"),
    "i0_large": (lambda u: exp(-1 / u) * besseli(0, 1 / u) / sqrt(u), 0, mpf(1) / 8, "exp(-x) sqrt(x) I0(x) of 1 / x"),
    "i1_small": (lambda x: exp(-x) * besseli(1, x) / x, 0, 8, "exp(-x) I1(x) / x of x"),
    "i1_large": (lambda u: exp(-1 / u) * besseli(1, 1 / u) / sqrt(u), 0, mpf(1) / 8, "exp(-x) sqrt(x) I1(x) of 1 / x"),
    "k0_small": (at_square(lambda x: besselk(0, x) + log(x / 2) * besseli(0, x)), 0, 4, "K0(x) + log(x / 2) I0(x) of x^2"),
    "k0_large": (lambda u: exp(1 / u) * besselk(0, 1 / u) / sqrt(u), 0, mpf(1) / 2, "exp(x) sqrt(x) K0(x) of 1 / x"),
    "k1_small": (at_square(lambda x: x * (besselk(1, x) - log(x / 2) * besseli(1, x))), 0, 4, "x (K1(x) - log(x / 2) I1(x)) of x^2"),
    "k1_large": (lambda u: exp(1 / u) * besselk(1, 1 / u) / sqrt(u), 0, mpf(1) / 2, "exp(x) sqrt(x) K1(x) of 1 / x"),
    "j0_small": (at_square(lambda x: besselj(0, x)), 0, 64, "J0(x) of x^2"),
    "j1_small": (at_square(lambda x: besselj(1, x) / x), 0, 64, "J1(x) / x of x^2"),
    "y0_small": (at_square(lambda x: bessely(0, x) - 2 / pi * log(x) * besselj(0, x)), 0, 64, "Y0(x) - 2 / pi log(x) J0(x) of x^2"),
    "y1_small": (at_square(lambda x: (bessely(1, x) - 2 / pi * (log(x) * besselj(1, x) - 1 / x)) / x), 0, 64, "(Y1(x) - 2 / pi (log(x) J1(x) - 1 / x)) / x of x^2"),
    "p0": (phase(0, 0), 0, 1, "P of order 0, of (8 / x)^2"),
    "q0": (phase(0, 1), 0, 1, "x Q of order 0, of (8 / x)^2"),
    "p1": (phase(1, 0), 0, 1, "P of order 1, of (8 / x)^2"),
    "q1": (phase(1, 1), 0, 1, "x Q of order 1, of (8 / x)^2"),
    "erfcx": (lambda t: (lambda x: (1 + 2 * x) * exp(x * x) * erfc(x))(mpf("3.75") * (1 + t) / (1 - t)), -1, 1, "(1 + 2 x) exp(x^2) erfc(x) of (x - 3.75) / (x + 3.75)"),
    "quantile_middle": (at_square(lambda y: sqrt(2) * erfinv(2 * y) / y), 0, mpf("0.1345"), "the normal quantile of 1/2 + y, over y, of y^2"),
    "quantile_tail": (quantile_tail, mpf(1) / 8, mpf(1) / 2, "x - log(x) / x less the normal quantile of exp(-x^2 / 2), of 1 / x in [1/8, 1/2]"),
    "quantile_far": (quantile_tail, mpf(1) / 40, mpf(1) / 8, "the same for 1 / x in [1/40, 1/8]"),
}


def coefficients(function, low, high, nodes=64):
    """Of the series sum c[k] T_k(t), t = (2 x - low - high) / (high - low), the halved first one included; those below a double's last bit are left out."""
    angles = [pi * (k + mpf(1) / 2) / nodes for k in range(nodes)]
    values = [function((high - low) * (cos(a) + 1) / 2 + low) for a in angles]
    c = [2 / mpf(nodes) * sum(v * cos(k * a) for v, a in zip(values, angles)) for k in range(nodes)]
    c[0] /= 2
    largest = max(abs(v) for v in c)
    while abs(c[-1]) < largest * mpf(2) ** -55:
        c.pop()
    assert len(c) < nodes - 2, "not smooth enough"
    return c


def main():
    print("/* bessel_tables: Chebyshev coefficients for bessel.c, written by cmake/chebyshev.py. Each begins with the constant. */")
    print("#ifndef TERN_ATEN_BESSEL_TABLES_H\n#define TERN_ATEN_BESSEL_TABLES_H\n")
    for name, (function, low, high, text) in TABLES.items():
        print(f"/* {text} */")
        row = ", ".join(float(c).hex() for c in coefficients(function, mpf(low), mpf(high)))
        print(f"static const double {name}[] = {{{row}}};")
    print("\n#endif")


if __name__ == "__main__":
    main()
