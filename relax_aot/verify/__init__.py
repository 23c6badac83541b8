"""Does the result compute what the ops mean?"""
