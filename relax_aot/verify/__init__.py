# SPDX-License-Identifier: Apache-2.0
"""Does the result compute what the ops mean?"""
